//! Times as groups of bars, as SVG.
use std::fmt::Write as _;

const BAR_PX: f64 = 16.0;
const GAP_PX: f64 = 28.0;
const LEFT_PX: f64 = 48.0;
const TOP_PX: f64 = 76.0;
const PLOT_PX: f64 = 240.0;
const COLOURS: [&str; 7] = ["#888888", "#1f5fa8", "#7fb2e5", "#b9d4ef", "#c96a1b", "#2f8f4e", "#7a4fa3"];

/// Draws ratios: a group of bars for each name, a bar for each of `series`. What was not measured has none.
pub fn svg(title: &str, series: &[&str], groups: &[(String, Vec<Option<f64>>)]) -> String {
    let group_px = BAR_PX * series.len() as f64 + GAP_PX;
    let width = LEFT_PX + (group_px * groups.len() as f64).max(560.0) + 16.0;
    let height = TOP_PX + PLOT_PX + 40.0;
    let most = groups.iter().flat_map(|(_, ratios)| ratios).flatten().copied().fold(1.0, f64::max);
    let y = |ratio: f64| TOP_PX + PLOT_PX * (1.0 - ratio / most);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\" fill=\"#222222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT_PX}\" y=\"22\" font-size=\"15\">{title}</text>\n"
    );
    // Writing to a string cannot fail.
    for (i, name) in series.iter().enumerate() {
        let x = LEFT_PX + i as f64 * 100.0;
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"36\" width=\"11\" height=\"11\" fill=\"{}\"/>", COLOURS[i % 7]);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"46\">{name}</text>", x + 15.0);
    }
    for (i, (name, ratios)) in groups.iter().enumerate() {
        let left = LEFT_PX + i as f64 * group_px;
        for (bar, ratio) in ratios.iter().enumerate() {
            let Some(ratio) = ratio else { continue };
            let (x, top) = (left + bar as f64 * BAR_PX, y(*ratio));
            let (bar_px, colour) = (BAR_PX - 2.0, COLOURS[bar % 7]);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{bar_px}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                y(0.0) - top
            );
        }
        let _ = writeln!(svg, "<text x=\"{left:.1}\" y=\"{:.1}\">{name}</text>", y(0.0) + 16.0);
    }
    let (one, end) = (y(1.0), width - 16.0);
    let _ = writeln!(svg, "<path d=\"M{LEFT_PX} {one:.1}H{end:.1}\" stroke=\"#aa2222\" stroke-dasharray=\"5 3\"/>");
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ratio_has_a_bar_and_what_was_not_measured_has_none() {
        let chart =
            svg("t", &["a", "b"], &[("x".to_owned(), vec![Some(1.0), None]), ("y".to_owned(), vec![Some(2.0); 2])]);
        // The background, two in the legend, three bars.
        assert_eq!(chart.matches("<rect").count(), 1 + 2 + 3);
        assert_eq!(chart.matches("height=\"240.0\"").count(), 2);
        assert_eq!(chart.matches("height=\"120.0\"").count(), 1);
        assert!(!svg("nothing", &[], &[]).contains("NaN"));
    }
}
