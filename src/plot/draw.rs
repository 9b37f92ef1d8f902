//! Puts panels on paper: grid of panels, shared legend below them, colours that colour-blind readers can tell apart.
//! Source of the colours: Okabe and Ito, 2008. Font: DejaVu Sans, from the crate `dejavu` (Bitstream Vera licence).

use super::{PlotError, Result, curves::Curve, curves::Panel};
use plotters::{
    coord::Shift,
    prelude::*,
    style::{FontStyle, register_font},
};
use std::{collections::BTreeMap, error::Error, path::Path, sync::OnceLock};

/// What the picture is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Svg,
    Png,
}

const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 30),
    RGBColor(100, 100, 100),
];

/// Dashes of a second and a third round of the colours, before scaling: (stroke, pause).
const DASHES: [(u32, u32); 2] = [(9, 4), (2, 3)];

/// How a curve is told from the others: no two of 24 are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    colour: RGBColor,
    /// Full lines where it is None.
    dash: Option<(u32, u32)>,
}

/// Look number `n`, from 0.
fn look(n: usize) -> Look {
    let round = n / COLOURS.len() % (DASHES.len() + 1);
    Look { colour: COLOURS[n % COLOURS.len()], dash: round.checked_sub(1).map(|r| DASHES[r]) }
}

/// Panels in one row at most.
const COLUMNS: usize = 3;

/// Height of one line of the legend, before scaling.
const LEGEND_LINE: u32 = 22;

type Drawn = std::result::Result<(), Box<dyn Error>>;

/// Draws the panels into the file.
pub(super) fn draw(panels: &[Panel], out: &Path, format: Format) -> Result<()> {
    // Asked first: the drawing library would only say that drawing failed.
    let io = |source| PlotError::Io { action: "write", path: out.to_owned(), source };
    std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(out).map_err(io)?;
    let failed = |what: String| PlotError::Draw { out: out.to_owned(), what };
    static FONT_READY: OnceLock<bool> = OnceLock::new();
    if !FONT_READY.get_or_init(|| register_font(FONT, FontStyle::Normal, dejavu::sans::regular()).is_ok()) {
        return Err(failed("the font DejaVu Sans cannot be read".into()));
    }
    // A PNG has twice the dots, so that it is sharp in print.
    let page = Page::new(panels, if format == Format::Png { 2 } else { 1 });
    match format {
        Format::Svg => {
            let mut text = String::new();
            page.draw(panels, SVGBackend::with_string(&mut text, page.size)).map_err(|e| failed(e.to_string()))?;
            std::fs::write(out, text).map_err(io)
        }
        Format::Png => page.draw(panels, BitMapBackend::new(out, page.size)).map_err(|e| failed(e.to_string())),
    }
}

/// Sizes and looks of one picture.
struct Page {
    scale: u32,
    grid: (usize, usize),
    size: (u32, u32),
    /// Lines of the legend: (label, look, x of its key).
    legend: Vec<Vec<(String, Look, i32)>>,
    note: Option<&'static str>,
}

impl Page {
    fn new(panels: &[Panel], scale: u32) -> Self {
        let columns = panels.len().clamp(1, COLUMNS);
        let rows = panels.len().div_ceil(columns);
        let (wide, high) = if columns == 1 { (640, 400) } else { (460, 330) };
        let width = wide * columns as u32 * scale;
        let mut looks: BTreeMap<&str, Look> = BTreeMap::new();
        for curve in panels.iter().flat_map(|panel| &panel.curves) {
            let next = look(looks.len());
            looks.entry(&curve.label).or_insert(next);
        }
        let (mut legend, mut x) = (vec![Vec::new()], 0);
        for (label, look) in looks {
            let needed = text_width(label, 13 * scale) + (50 * scale) as i32;
            if x > 0 && x + needed > (width - 60 * scale) as i32 {
                legend.push(Vec::new());
                x = 0;
            }
            let line = legend.len() - 1;
            legend[line].push((label.to_owned(), look, x));
            x += needed;
        }
        let curves = || panels.iter().flat_map(|panel| &panel.curves);
        let note = if curves().any(|curve| !curve.iqm.is_empty()) {
            Some("line: mean over runs; band: lowest to highest run; dashed: interquartile mean")
        } else if curves().any(|curve| curve.runs.len() > 1) {
            Some("line: mean over runs; band: lowest to highest run")
        } else {
            None
        };
        let lines = legend.len() as u32 + u32::from(note.is_some());
        let height = (high * rows as u32 + LEGEND_LINE * lines + 14) * scale;
        Self { scale, grid: (rows, columns), size: (width, height), legend, note }
    }

    fn px(&self, points: u32) -> u32 {
        points * self.scale
    }

    fn look(&self, label: &str) -> Look {
        let plain = Look { colour: INK, dash: None };
        self.legend.iter().flatten().find(|entry| entry.0 == label).map_or(plain, |entry| entry.1)
    }

    fn draw<B: DrawingBackend>(&self, panels: &[Panel], backend: B) -> Drawn
    where
        B::ErrorType: 'static,
    {
        let root = backend.into_drawing_area();
        root.fill(&WHITE)?;
        let lines = self.legend.len() as u32 + u32::from(self.note.is_some());
        let (top, bottom) = root.split_vertically(self.size.1 - self.px(LEGEND_LINE * lines + 14));
        for (panel, area) in panels.iter().zip(top.split_evenly(self.grid)) {
            self.panel(panel, &area)?;
        }
        self.legend(&bottom)?;
        root.present()?;
        Ok(())
    }

    fn panel<B: DrawingBackend>(&self, panel: &Panel, area: &DrawingArea<B, Shift>) -> Drawn
    where
        B::ErrorType: 'static,
    {
        let points = || panel.curves.iter().flat_map(|curve| curve.runs.iter().flatten());
        let x_end = points().map(|p| p.0).fold(1.0, f64::max);
        let (low, high) = points().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), p| (l.min(p.1), h.max(p.1)));
        let margin = if high > low { 0.05 * (high - low) } else { 0.5 };
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.title, (FONT, self.px(17)).into_font().color(&INK))
            .margin(self.px(12))
            .margin_right(self.px(24))
            .x_label_area_size(self.px(42))
            .y_label_area_size(self.px(62))
            .build_cartesian_2d(0.0..x_end, low - margin..high + margin)?;
        let tag = |curve: &Curve| if curve.tag.starts_with("eval/") { "evaluation return" } else { "episodic return" };
        let first = panel.curves.first().map_or("return", tag);
        let y_title = if panel.curves.iter().all(|curve| tag(curve) == first) { first } else { "return" };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225).stroke_width(self.scale))
            .axis_style(INK.stroke_width(self.scale))
            .set_all_tick_mark_size(self.px(4))
            .label_style((FONT, self.px(12)).into_font().color(&INK))
            .axis_desc_style((FONT, self.px(14)).into_font().color(&INK))
            .x_desc("environment steps")
            .y_desc(y_title)
            .x_labels(6)
            .y_labels(7)
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .draw()?;
        for curve in &panel.curves {
            let look @ Look { colour, .. } = self.look(&curve.label);
            let zip = |ys: &[f64]| curve.steps.iter().copied().zip(ys.iter().copied()).collect::<Vec<_>>();
            let several = curve.runs.len() > 1;
            if several {
                let edge = zip(&curve.max).into_iter().chain(zip(&curve.min).into_iter().rev()).collect::<Vec<_>>();
                chart.draw_series([Polygon::new(edge, colour.mix(0.18).filled())])?;
            }
            if several {
                for run in &curve.runs {
                    chart
                        .draw_series(LineSeries::new(run.iter().copied(), colour.mix(0.35).stroke_width(self.scale)))?;
                }
            }
            let main = if several { zip(&curve.mean) } else { curve.runs.iter().flatten().copied().collect() };
            let thick = colour.stroke_width(self.px(2));
            match look.dash {
                None => chart.draw_series(LineSeries::new(main, thick))?,
                Some((dash, gap)) => {
                    chart.draw_series(DashedLineSeries::new(main, self.px(dash), self.px(gap), thick))?
                }
            };
            let (dash, gap, dark) = (self.px(6), self.px(4), darker(colour).stroke_width(self.scale));
            chart.draw_series(DashedLineSeries::new(zip(&curve.iqm), dash, gap, dark))?;
            // A run of one point has no line.
            let lone = curve.runs.iter().filter(|run| run.len() == 1).flatten();
            chart.draw_series(lone.map(|p| Circle::new(*p, self.px(3), colour.filled())))?;
        }
        Ok(())
    }

    fn legend<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Drawn
    where
        B::ErrorType: 'static,
    {
        let (left, key, gap) = (self.px(40) as i32, self.px(22) as i32, self.px(6) as i32);
        let line_at = |line: usize| (self.px(LEGEND_LINE) * line as u32 + self.px(10)) as i32;
        let size = self.px(13);
        for (line, entries) in self.legend.iter().enumerate() {
            let y = line_at(line);
            for (label, look, x) in entries {
                let from = left + x;
                let stroke = look.colour.stroke_width(self.px(3));
                let (dash, pause) = look.dash.map_or((key, 0), |d| (self.px(d.0) as i32, self.px(d.1) as i32));
                for begin in (from..from + key).step_by((dash + pause) as usize) {
                    let end = (begin + dash).min(from + key);
                    area.draw(&PathElement::new([(begin, y), (end, y)], stroke))?;
                }
                let style = (FONT, size).into_font().color(&INK);
                area.draw(&Text::new(label.clone(), (from + key + gap, y - size as i32 / 2), style))?;
            }
        }
        if let Some(note) = self.note {
            let small = self.px(11);
            let style = (FONT, small).into_font().color(&RGBColor(110, 110, 110));
            area.draw(&Text::new(note, (left, line_at(self.legend.len()) - small as i32 / 2), style))?;
        }
        Ok(())
    }
}

/// The colour of a dashed line on the full one.
fn darker(colour: RGBColor) -> RGBColor {
    RGBColor(colour.0 / 3, colour.1 / 3, colour.2 / 3)
}

fn text_width(text: &str, size: u32) -> i32 {
    (FONT, size).into_font().box_size(text).map_or(size as i32 * text.len() as i32, |size| size.0 as i32)
}

/// 1500000 as `1.5M`, 20000 as `20k`; small numbers with up to three decimals.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 999_950.0 => (value / 1e6, "M"),
        v if v >= 9_999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}

#[cfg(test)]
mod tests {
    #[test]
    fn twenty_four_curves_look_different() {
        let looks: Vec<_> = (0..24).map(super::look).collect();
        assert!((0..24).all(|n| looks[..n].iter().all(|other| *other != looks[n])));
        assert_eq!(super::look(24), looks[0]);
    }

    #[test]
    fn short_numbers_by_hand() {
        let want =
            [(0.0, "0"), (-0.0, "0"), (0.25, "0.25"), (-1.0, "-1"), (2500.0, "2500"), (20e3, "20k"), (1.5e6, "1.5M")];
        for (x, text) in want {
            assert_eq!(super::short(x), text);
        }
    }
}
