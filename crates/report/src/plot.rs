//! Curves over time.

use mayfly_metrics::work::Span;
use plotters::prelude::*;

const WIDTH: u32 = 900;
const HEIGHT: u32 = 180;

/// A quantity over time, as SVG. Nothing where there is none.
pub(crate) fn curve(line: &[Span], unit: &str, of: impl Fn(&Span) -> f64) -> Option<String> {
    let last = line.last()?;
    let points: Vec<(f64, f64)> = steps(line, of);
    let most = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let end = last.began_seconds + last.seconds;
    let mut svg = String::new();
    draw(&mut svg, &points, (end, most * 1.1), unit).ok()?;
    Some(svg)
}

/// Corners of the steps; what lies between spans is nothing.
fn steps(line: &[Span], of: impl Fn(&Span) -> f64) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    let mut reached = 0.0;
    for span in line {
        let value = of(span) / span.seconds.max(f64::EPSILON);
        let (from, to) = (span.began_seconds, span.began_seconds + span.seconds);
        if from > reached + span.seconds / 2.0 {
            points.extend([(reached, 0.0), (from, 0.0)]);
        }
        points.extend([(from.max(reached), value), (to, value)]);
        reached = to;
    }
    points.push((reached, 0.0));
    points
}

fn draw(
    svg: &mut String,
    points: &[(f64, f64)],
    (end, most): (f64, f64),
    unit: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(28)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..end.max(f64::EPSILON), 0.0..most)
        .map_err(|error| error.to_string())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc("seconds")
        .y_desc(unit)
        .y_labels(4)
        .y_label_formatter(&|value| crate::figures::short(*value))
        .draw()
        .map_err(|error| error.to_string())?;
    let colour = RGBColor(31, 119, 180);
    chart
        .draw_series(
            AreaSeries::new(points.iter().copied(), 0.0, colour.mix(0.25)).border_style(colour),
        )
        .map_err(|error| error.to_string())?;
    area.present().map_err(|error| error.to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_time_is_nothing_and_not_a_slope() {
        let span = |at, operations| Span {
            began_seconds: at,
            seconds: 1.0,
            operations,
            ..Span::default()
        };
        let line = [span(0.0, 5), span(1.0, 7), span(9.0, 2)];
        let points = steps(&line, |span| span.operations as f64);
        assert!(points.contains(&(2.0, 0.0)) && points.contains(&(9.0, 0.0)), "{points:?}");
        assert!(curve(&line, "op/s", |span| span.operations as f64).is_some());
        assert_eq!(curve(&line, "MiB/s", |span| span.read_bytes as f64), None);
        assert_eq!(curve(&[], "op/s", |_| 1.0), None);
    }
}
