//! Pictures as pixels: PNG files of one frame, GIF files of an episode. Feature `render`.
//!
//! Shapes are filled on a grid three times as fine and averaged, which is all the smoothing there is.

use std::path::Path;

use image::{Rgb, RgbImage};

use crate::env::DynEnv;
use crate::error::{EnvError, Result};
use crate::font::glyph;
use crate::picture::{Picture, Shape, colour, text_width};

/// A frame: 8-bit red, green, blue.
pub type Image = RgbImage;

/// Width of a frame in pixels; its height follows from the picture.
pub const WIDTH: u32 = 480;
const MARGIN: u32 = 16;
const CAPTION: u32 = 32;
/// Sub-pixels per pixel and direction.
const FINE: u32 = 3;

/// The environment's picture with a caption below it.
pub fn frame(env: &dyn DynEnv, caption: &str) -> RgbImage {
    draw(&env.picture(), caption)
}

/// A picture with a caption below it, [`WIDTH`] pixels wide.
pub fn draw(picture: &Picture, caption: &str) -> RgbImage {
    let [w, h] = picture.size.map(|x| x.max(1e-3));
    // Tall pictures become narrower, so that a frame is at most twice as high as wide.
    let scale = ((WIDTH - 2 * MARGIN) as f32 / w).min((2 * WIDTH) as f32 / h);
    let height = (h * scale).ceil() as u32 + 2 * MARGIN + CAPTION;
    let left = (WIDTH as f32 - w * scale) / 2.0;
    let mut canvas = Canvas {
        fine: RgbImage::from_pixel(WIDTH * FINE, height * FINE, Rgb(colour::PAPER)),
        scale: scale * FINE as f32,
        origin: [left * FINE as f32, (MARGIN * FINE) as f32],
    };
    picture.shapes.iter().for_each(|s| canvas.shape(s));
    let size = (12.0f32).min((WIDTH - 2 * MARGIN) as f32 / text_width(caption, 1.0).max(1.0));
    canvas.scale = FINE as f32;
    canvas.origin = [(MARGIN * FINE) as f32, ((height - CAPTION) * FINE) as f32];
    canvas.text([0.0, 8.0], size, caption, colour::INK);
    canvas.average()
}

/// Writes one frame. Error: `Picture` with the file and what went wrong.
pub fn write_png(file: &Path, frame: &RgbImage) -> Result<()> {
    frame.save_with_format(file, image::ImageFormat::Png).map_err(|e| failed(file, &e))
}

/// Writes frames of one size, `delay` hundredths of a second each, again and again. Error: `Picture`; no frames.
pub fn write_gif(file: &Path, frames: &[RgbImage], delay: u16) -> Result<()> {
    let Some(first) = frames.first() else {
        return Err(EnvError::Length { what: format!("frames of {}", file.display()), found: 0, expected: 1 });
    };
    let size = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    let (width, height) = (size(first.width()), size(first.height()));
    let out = std::fs::File::create(file).map_err(|e| failed(file, &e))?;
    let mut encoder =
        gif::Encoder::new(std::io::BufWriter::new(out), width, height, &[]).map_err(|e| failed(file, &e))?;
    encoder.set_repeat(gif::Repeat::Infinite).map_err(|e| failed(file, &e))?;
    for (i, frame) in frames.iter().enumerate() {
        if frame.dimensions() != first.dimensions() {
            let problem = format!("frame {i} has {:?} pixels, expected {:?}", frame.dimensions(), first.dimensions());
            return Err(EnvError::Picture { file: file.display().to_string(), problem });
        }
        let mut one = gif::Frame::from_rgb_speed(width, height, frame.as_raw(), 20);
        // The last frame stays, so that the end can be seen.
        one.delay = if i + 1 == frames.len() { delay.max(150) } else { delay };
        encoder.write_frame(&one).map_err(|e| failed(file, &e))?;
    }
    Ok(())
}

fn failed(file: &Path, e: &dyn std::error::Error) -> EnvError {
    EnvError::Picture { file: file.display().to_string(), problem: e.to_string() }
}

struct Canvas {
    fine: RgbImage,
    /// Fine pixels per unit.
    scale: f32,
    origin: [f32; 2],
}

impl Canvas {
    fn place(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        [self.origin[0] + x * self.scale, self.origin[1] + y * self.scale]
    }

    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Polygon { points, fill } => {
                let points: Vec<[f32; 2]> = points.iter().map(|p| self.place(*p)).collect();
                self.fill(&bounds(&points, 0.0), *fill, |p| inside(&points, p));
            }
            Shape::Line { from, to, width, colour } => {
                let (a, b, r) = (self.place(*from), self.place(*to), 0.5 * width * self.scale);
                self.fill(&bounds(&[a, b], r), *colour, |p| distance(p, a, b) <= r);
            }
            Shape::Disc { at, radius, fill } => {
                let (a, r) = (self.place(*at), radius * self.scale);
                self.fill(&bounds(&[a], r), *fill, |p| distance(p, a, a) <= r);
            }
            Shape::Text { at, height, text, colour } => self.text(*at, *height, text, *colour),
        }
    }

    fn text(&mut self, [x, y]: [f32; 2], height: f32, text: &str, colour: crate::picture::Colour) {
        let dot = height / 7.0;
        for (i, c) in text.chars().enumerate() {
            for (row, dots) in glyph(c).into_iter().enumerate() {
                for column in (0..5).filter(|column| dots >> (4 - column) & 1 == 1) {
                    let a = self.place([x + dot * (6 * i + column) as f32, y + dot * row as f32]);
                    let b = [a[0] + dot * self.scale, a[1] + dot * self.scale];
                    self.fill(&bounds(&[a, b], 0.0), colour, |p| {
                        (a[0]..b[0]).contains(&p[0]) && (a[1]..b[1]).contains(&p[1])
                    });
                }
            }
        }
    }

    /// Colours the fine pixels of a box whose centres are in.
    fn fill(&mut self, [low, high]: &[[f32; 2]; 2], colour: crate::picture::Colour, is_in: impl Fn([f32; 2]) -> bool) {
        let range = |low: f32, high: f32, n: u32| (low.max(0.0) as u32).min(n)..((high.max(0.0) as u32) + 1).min(n);
        for y in range(low[1], high[1], self.fine.height()) {
            for x in range(low[0], high[0], self.fine.width()) {
                if is_in([x as f32 + 0.5, y as f32 + 0.5]) {
                    self.fine.put_pixel(x, y, Rgb(colour));
                }
            }
        }
    }

    fn average(&self) -> RgbImage {
        RgbImage::from_fn(self.fine.width() / FINE, self.fine.height() / FINE, |x, y| {
            let mut sum = [0u32; 3];
            for i in 0..FINE * FINE {
                let p = self.fine.get_pixel(x * FINE + i % FINE, y * FINE + i / FINE).0;
                sum.iter_mut().zip(p).for_each(|(s, p)| *s += u32::from(p));
            }
            Rgb(sum.map(|s| (s / (FINE * FINE)) as u8))
        })
    }
}

fn bounds(points: &[[f32; 2]], margin: f32) -> [[f32; 2]; 2] {
    let fold = |axis: usize, start: f32, f: fn(f32, f32) -> f32| points.iter().map(|p| p[axis]).fold(start, f);
    [
        [0, 1].map(|axis| fold(axis, f32::INFINITY, f32::min) - margin),
        [0, 1].map(|axis| fold(axis, f32::NEG_INFINITY, f32::max) + margin),
    ]
}

/// Even-odd rule.
fn inside(points: &[[f32; 2]], [x, y]: [f32; 2]) -> bool {
    let before = points.iter().cycle().skip(points.len().saturating_sub(1));
    points
        .iter()
        .zip(before)
        .filter(|(a, b)| (a[1] > y) != (b[1] > y) && x < (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1]) + a[0])
        .count()
        % 2
        == 1
}

/// From p to the line between a and b.
fn distance(p: [f32; 2], a: [f32; 2], b: [f32; 2]) -> f32 {
    let (d, q) = ([b[0] - a[0], b[1] - a[1]], [p[0] - a[0], p[1] - a[1]]);
    let length = d[0] * d[0] + d[1] * d[1];
    let t = if length > 0.0 { ((q[0] * d[0] + q[1] * d[1]) / length).clamp(0.0, 1.0) } else { 0.0 };
    (q[0] - t * d[0]).hypot(q[1] - t * d[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fill_what_they_cover() {
        let mut p = Picture::new(4.0, 2.0);
        p.rect([0.0, 0.0], [2.0, 2.0], colour::RED);
        p.disc([3.0, 1.0], 0.5, colour::BLUE);
        p.line([2.25, 0.25], [3.75, 0.25], 0.2, colour::GREEN);
        let image = draw(&p, "");
        let at = |x: f32, y: f32| {
            let scale = (WIDTH - 2 * MARGIN) as f32 / 4.0;
            image.get_pixel(MARGIN + (x * scale) as u32, MARGIN + (y * scale) as u32).0
        };
        assert_eq!([at(1.0, 1.0), at(3.0, 1.0), at(3.0, 0.25)], [colour::RED, colour::BLUE, colour::GREEN]);
        assert_eq!([at(2.2, 1.0), at(3.4, 1.4)], [colour::PAPER; 2], "outside the disc");
    }

    #[test]
    fn a_caption_is_ink_and_unwritable_files_are_named() {
        let frame = draw(&Picture::new(1.0, 0.2), "STEP 1");
        assert!(frame.pixels().any(|p| p.0 == colour::INK));
        assert!(draw(&Picture::new(1.0, 0.2), "").pixels().all(|p| p.0 == colour::PAPER));
        let missing = Path::new("no such folder/a.png");
        for e in [write_png(missing, &frame), write_gif(missing, std::slice::from_ref(&frame), 5)] {
            assert!(matches!(e, Err(EnvError::Picture { ref file, .. }) if file.contains("a.png")), "{e:?}");
        }
        assert!(write_gif(missing, &[], 5).is_err());
    }
}
