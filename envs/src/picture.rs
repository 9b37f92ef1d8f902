//! Pictures as a list of plain shapes, in units of the task's choosing; y grows downwards. Tasks describe themselves
//! here; `render` (feature) turns a picture into pixels.

/// Red, green, blue.
pub type Colour = [u8; 3];

/// Colours that all tasks share.
pub mod colour {
    use super::Colour;

    /// Background.
    pub const PAPER: Colour = [250, 250, 247];
    /// Lines and text.
    pub const INK: Colour = [45, 52, 64];
    /// Things out of play.
    pub const PALE: Colour = [218, 222, 228];
    /// Face-down cards, closed cells, walls.
    pub const SLATE: Colour = [120, 134, 153];
    /// The agent, and right answers.
    pub const BLUE: Colour = [41, 112, 189];
    /// Hits, hearts and diamonds.
    pub const RED: Colour = [205, 62, 58];
    /// Goals.
    pub const GREEN: Colour = [62, 150, 92];
    /// What the agent sees or is asked about.
    pub const GOLD: Colour = [240, 190, 74];
    /// Cards and open cells.
    pub const WHITE: Colour = [255, 255, 255];
}

/// One shape.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Filled polygon; a rectangle is one of four corners.
    Polygon {
        /// Corners.
        points: Vec<[f32; 2]>,
        /// Colour.
        fill: Colour,
    },
    /// Straight line with round ends.
    Line {
        /// One end.
        from: [f32; 2],
        /// The other.
        to: [f32; 2],
        /// Thickness.
        width: f32,
        /// Colour.
        colour: Colour,
    },
    /// Filled circle.
    Disc {
        /// Centre.
        at: [f32; 2],
        /// Radius.
        radius: f32,
        /// Colour.
        fill: Colour,
    },
    /// A line of capitals and digits.
    Text {
        /// Left upper corner.
        at: [f32; 2],
        /// Height of the letters; each is 6/7 of that wide, space included.
        height: f32,
        /// What it says.
        text: String,
        /// Colour.
        colour: Colour,
    },
}

/// Shapes, drawn in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// Width and height of the view.
    pub size: [f32; 2],
    /// First below, last above.
    pub shapes: Vec<Shape>,
}

impl Picture {
    /// An empty view.
    pub fn new(width: f32, height: f32) -> Self {
        Picture { size: [width, height], shapes: Vec::new() }
    }

    /// Adds a rectangle with left upper corner (x, y).
    pub fn rect(&mut self, [x, y]: [f32; 2], [w, h]: [f32; 2], fill: Colour) {
        self.polygon(&[[x, y], [x + w, y], [x + w, y + h], [x, y + h]], fill);
    }

    /// Adds a polygon.
    pub fn polygon(&mut self, points: &[[f32; 2]], fill: Colour) {
        self.shapes.push(Shape::Polygon { points: points.to_vec(), fill });
    }

    /// Adds a line.
    pub fn line(&mut self, from: [f32; 2], to: [f32; 2], width: f32, colour: Colour) {
        self.shapes.push(Shape::Line { from, to, width, colour });
    }

    /// Adds a disc.
    pub fn disc(&mut self, at: [f32; 2], radius: f32, fill: Colour) {
        self.shapes.push(Shape::Disc { at, radius, fill });
    }

    /// Adds text with left upper corner `at`.
    pub fn text(&mut self, at: [f32; 2], height: f32, text: impl Into<String>, colour: Colour) {
        self.shapes.push(Shape::Text { at, height, text: text.into(), colour });
    }

    /// Adds text about its centre.
    pub fn centred(&mut self, [x, y]: [f32; 2], height: f32, text: impl Into<String>, colour: Colour) {
        let text = text.into();
        let width = text_width(&text, height);
        self.text([x - width / 2.0, y - height / 2.0], height, text, colour);
    }

    /// A board of unit cells with gaps; `cell(row, column)` gives fill, and a mark with its colour.
    pub fn board(rows: usize, columns: usize, cell: impl Fn(usize, usize) -> (Colour, String, Colour)) -> Self {
        let mut p = Picture::new(columns as f32, rows as f32);
        for r in 0..rows {
            for c in 0..columns {
                let (fill, mark, ink) = cell(r, c);
                let (x, y) = (c as f32, r as f32);
                p.rect([x + 0.03, y + 0.03], [0.94, 0.94], fill);
                p.centred([x + 0.5, y + 0.5], 0.5, mark, ink);
            }
        }
        p
    }

    /// Plain text, one line below the other.
    pub fn lines(text: &str) -> Self {
        let widest = text.lines().map(|l| text_width(l, 1.0)).fold(12.0, f32::max);
        let mut p = Picture::new(widest + 1.0, 1.6 * text.lines().count().max(1) as f32 + 1.0);
        for (i, line) in text.lines().enumerate() {
            p.text([0.5, 0.8 + 1.6 * i as f32], 1.0, line, colour::INK);
        }
        p
    }
}

/// Width of a line of text of this height.
pub fn text_width(text: &str, height: f32) -> f32 {
    height * 6.0 / 7.0 * text.chars().count() as f32
}
