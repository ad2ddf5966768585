//! The plot page: rates of each phase and target as bars, with the span of the runs.
//!
//! One panel for operations and one for bytes, for each number of processes. Rates of operations
//! differ by decades, so their axis is logarithmic; that of bytes begins at zero.

use anyhow::{Result, anyhow};
use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
        types::RangedCoordf64,
    },
    prelude::*,
};

use super::results::{Measured, PhaseReport, Report};
use super::statistics::Summary;

const WIDTH: u32 = 1100;
const BAR: u32 = 13;
const PANEL_HEAD: u32 = 90;
/// Told apart by people who do not see all colours (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What a panel shows.
struct Panel<'r> {
    title: String,
    phases: Vec<&'r PhaseReport>,
    rate: fn(&Measured) -> Option<Summary>,
    is_logarithmic: bool,
    targets: usize,
}

impl Panel<'_> {
    fn height(&self) -> u32 {
        let bars = self.phases.len() * (self.targets + 1);
        PANEL_HEAD + bars as u32 * BAR
    }

    /// From where the bars begin to beyond the longest.
    fn range(&self) -> (f64, f64) {
        let rates = self.phases.iter().flat_map(|phase| &phase.targets).filter_map(self.rate);
        let (least, most) = rates.fold((f64::MAX, 1.0_f64), |(least, most), rate| {
            (least.min(rate.min), most.max(rate.max))
        });
        if !self.is_logarithmic {
            return (0.0, most * 1.05);
        }
        let least = least.clamp(0.001, most);
        (10_f64.powf((least / 1.5).log10().floor()), most * 1.3)
    }
}

/// The page as SVG.
///
/// # Errors
/// When it cannot be drawn.
pub fn svg(report: &Report) -> Result<String> {
    let panels = panels(report);
    let height = 40 + panels.iter().map(Panel::height).sum::<u32>();
    let mut page = String::new();
    {
        let root = SVGBackend::with_string(&mut page, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        legend(&root, report)?;
        let (_, mut rest) = root.split_vertically(40);
        for panel in &panels {
            let (own, below) = rest.split_vertically(panel.height());
            let (least, most) = panel.range();
            if panel.is_logarithmic {
                draw(&own, panel, least, (least..most).log_scale())?;
            } else {
                draw(&own, panel, least, least..most)?;
            }
            rest = below;
        }
        root.present().map_err(drawing)?;
    }
    Ok(page)
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("drawing the plot: {error}")
}

fn panels(report: &Report) -> Vec<Panel<'_>> {
    type Rate = fn(&Measured) -> Option<Summary>;
    let kinds: [(&str, bool, Rate); 2] = [
        ("operations/s", false, |measured| Some(measured.ops_per_s)),
        ("MiB/s", true, |measured| measured.mib_per_s),
    ];
    let mut panels = Vec::new();
    for procs in &report.settings.procs {
        for (unit, is_data, rate) in kinds {
            let fits = |phase: &&PhaseReport| {
                phase.procs == *procs && (phase.family == crate::Family::Data) == is_data
            };
            let phases: Vec<_> = report.phases.iter().filter(fits).collect();
            if !phases.is_empty() {
                let title = format!("{unit}, processes: {procs}");
                let targets = report.targets.len();
                let is_logarithmic = !is_data;
                panels.push(Panel { title, phases, rate, is_logarithmic, targets });
            }
        }
    }
    panels
}

fn legend(root: &Area<'_>, report: &Report) -> Result<()> {
    let mut left = 20;
    let style = ("sans-serif", 15).into_font();
    for (target, colour) in report.targets.iter().zip(COLOURS.iter().cycle()) {
        let square = Rectangle::new([(left, 12), (left + 14, 26)], colour.filled());
        root.draw(&square).map_err(drawing)?;
        let text = Text::new(target.label.clone(), (left + 20, 12), style.clone());
        root.draw(&text).map_err(drawing)?;
        left += 50 + 9 * i32::try_from(target.label.chars().count())?;
    }
    let says = "bar: median of the runs; line: from the least to the most";
    let text = Text::new(says, (left, 12), style.color(&RGBColor(90, 90, 90)));
    root.draw(&text).map_err(drawing)
}

type Chart<'a, 'b, X> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, RangedCoordf64>>;

fn draw<R>(area: &Area<'_>, panel: &Panel<'_>, least: f64, range: R) -> Result<()>
where
    R: AsRangedCoord<Value = f64>,
    R::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let slots = panel.phases.len() as f64;
    let mut chart: Chart<'_, '_, R::CoordDescType> = ChartBuilder::on(area)
        .caption(&panel.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(190)
        .build_cartesian_2d(range, 0.0..slots)
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_label_formatter(&|rate| super::cells::short(*rate))
        .draw()
        .map_err(drawing)?;
    for (index, phase) in panel.phases.iter().enumerate() {
        let top = slots - index as f64;
        label(area, &chart, &phase.phase, (least, top - 0.5))?;
        bars(&mut chart, panel, phase, top, least)?;
    }
    Ok(())
}

/// A phase's name left of its bars.
fn label<X: Ranged<ValueType = f64>>(
    area: &Area<'_>,
    chart: &Chart<'_, '_, X>,
    name: &str,
    at: (f64, f64),
) -> Result<()> {
    let (x, y) = chart.backend_coord(&at);
    let (base_x, base_y) = area.get_base_pixel();
    let place = (x - base_x - 8, y - base_y);
    let anchor = plotters::style::text_anchor::Pos::new(
        plotters::style::text_anchor::HPos::Right,
        plotters::style::text_anchor::VPos::Center,
    );
    let style = ("sans-serif", 13).into_font().into_text_style(area).pos(anchor);
    area.draw(&Text::new(name.to_owned(), place, style)).map_err(drawing)
}

fn bars<X: Ranged<ValueType = f64>>(
    chart: &mut Chart<'_, '_, X>,
    panel: &Panel<'_>,
    phase: &PhaseReport,
    top: f64,
    least: f64,
) -> Result<()> {
    let height = 1.0 / (panel.targets as f64 + 1.0);
    for (place, measured) in phase.targets.iter().enumerate() {
        let Some(rate) = (panel.rate)(measured) else { continue };
        let upper = top - height * (place as f64 + 0.5);
        let lower = upper - height * 0.9;
        let colour = COLOURS[place % COLOURS.len()];
        let bar = Rectangle::new([(least, lower), (rate.median, upper)], colour.filled());
        let middle = f64::midpoint(lower, upper);
        let span = vec![(rate.min.max(least), middle), (rate.max, middle)];
        chart.draw_series([bar]).map_err(drawing)?;
        chart.draw_series([PathElement::new(span, BLACK.stroke_width(1))]).map_err(drawing)?;
    }
    Ok(())
}
