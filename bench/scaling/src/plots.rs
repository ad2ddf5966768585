//! Curves as SVG: nodes to the right, rates upwards, both logarithmic. A filled mark is simulated
//! with the daemons, a hollow one is the model's, a cross is published, of other hardware.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 560);
/// Told apart by people who do not see all colours (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];

/// How a point is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Simulated.
    Filled,
    /// Of a model.
    Hollow,
    /// Published.
    Cross,
}

/// A curve: its name, and nodes, value and mark of each point. Published points are not joined.
#[derive(Debug, Clone)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64, Mark)>,
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("drawing the plot: {error}")
}

fn short(value: f64) -> String {
    match value {
        _ if value >= 1e9 => format!("{:.0}G", value / 1e9),
        _ if value >= 1e6 => format!("{:.0}M", value / 1e6),
        _ if value >= 1e3 => format!("{:.0}k", value / 1e3),
        _ if value >= 1.0 => format!("{value:.0}"),
        _ => format!("{value}"),
    }
}

/// A plot as SVG.
///
/// # Errors
/// It cannot be drawn.
pub fn svg(title: &str, unit: &str, lines: &[Line]) -> Result<String> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let most = all().map(|point| point.1).fold(f64::MIN, f64::max) * 1.5;
    let least = all().map(|point| point.1).fold(f64::MAX, f64::min) / 1.5;
    let mut page = String::new();
    {
        let root = SVGBackend::with_string(&mut page, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d((0.8..5500.0).log_scale(), (least..most).log_scale())
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .x_desc("nodes")
            .y_desc(unit)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .light_line_style(WHITE)
            .draw()
            .map_err(drawing)?;
        for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let joined = line.points.iter().filter(|point| point.2 != Mark::Cross);
            let path: Vec<(f64, f64)> = joined.map(|point| (point.0, point.1)).collect();
            chart
                .draw_series(LineSeries::new(path, colour.stroke_width(2)))
                .map_err(drawing)?
                .label(line.name.clone())
                .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
            let of = |mark: Mark| {
                let points = line.points.iter().filter(move |point| point.2 == mark);
                points.map(|point| (point.0, point.1))
            };
            let filled = of(Mark::Filled).map(|at| Circle::new(at, 4, colour.filled()));
            chart.draw_series(filled).map_err(drawing)?;
            let hollow = of(Mark::Hollow).map(|at| Circle::new(at, 4, colour.stroke_width(1)));
            chart.draw_series(hollow).map_err(drawing)?;
            let crosses = of(Mark::Cross).map(|at| Cross::new(at, 7, colour.stroke_width(2)));
            chart.draw_series(crosses).map_err(drawing)?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .position(SeriesLabelPosition::UpperLeft)
            .draw()
            .map_err(drawing)?;
        root.present().map_err(drawing)?;
    }
    Ok(page)
}
