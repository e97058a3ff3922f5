//! A chart of the time ratios, as SVG.
use std::fmt::Write as _;

const BAR_PX: f64 = 26.0;
const GAP_PX: f64 = 24.0;
const LEFT_PX: f64 = 56.0;
const RIGHT_PX: f64 = 24.0;
const TOP_PX: f64 = 72.0;
const PLOT_PX: f64 = 260.0;
const BOTTOM_PX: f64 = 64.0;
/// One for each limit; further limits begin again.
const COLOURS: [&str; 4] = ["#1f5fa8", "#7fb2e5", "#c96a1b", "#e8b07a"];

/// A group of bars.
pub struct Group {
    /// The program.
    pub name: String,
    /// A ratio for each limit, where it was measured.
    pub ratios: Vec<Option<f64>>,
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, size_px: u32, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size_px}\">{}</text>",
        escaped(content)
    );
}

/// Draws it. The line at 1 is the kernel's time.
pub fn svg(title: &str, percents: &[u32], groups: &[Group]) -> String {
    let group_px = BAR_PX * percents.len() as f64 + GAP_PX;
    let plot_px = (group_px * groups.len() as f64).max(360.0);
    let (width, height) = (LEFT_PX + plot_px + RIGHT_PX, TOP_PX + PLOT_PX + BOTTOM_PX);
    let most = groups.iter().flat_map(|group| &group.ratios).flatten().copied().fold(1.0, f64::max);
    let step = if most > 2.5 { (most / 5.0).ceil() } else { 0.25 };
    let top = (most / step).ceil() * step;
    let y = |ratio: f64| TOP_PX + PLOT_PX * (1.0 - ratio / top);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" fill=\"#222222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, LEFT_PX, 24.0, "start", 15, title);
    for (index, percent) in percents.iter().enumerate() {
        let (x, colour) = (LEFT_PX + index as f64 * 150.0, COLOURS[index % COLOURS.len()]);
        let _ = writeln!(svg, "<rect x=\"{x:.1}\" y=\"38\" width=\"12\" height=\"12\" fill=\"{colour}\"/>");
        text(&mut svg, x + 18.0, 49.0, "start", 12, &format!("limit {percent} % of peak"));
    }
    for mark in 0..=(top / step).round() as u32 {
        let ratio = mark as f64 * step;
        let (at, end) = (y(ratio), LEFT_PX + plot_px);
        let _ = writeln!(svg, "<path d=\"M{LEFT_PX:.1} {at:.1}H{end:.1}\" stroke=\"#dddddd\"/>");
        text(&mut svg, LEFT_PX - 8.0, at + 4.0, "end", 11, &format!("{ratio:.2}"));
    }
    for (number, group) in groups.iter().enumerate() {
        let left = LEFT_PX + number as f64 * group_px + GAP_PX / 2.0;
        for (index, ratio) in group.ratios.iter().enumerate() {
            let x = left + index as f64 * BAR_PX;
            let Some(ratio) = ratio else {
                text(&mut svg, x + BAR_PX / 2.0, y(0.0) - 5.0, "middle", 10, "-");
                continue;
            };
            let (at, colour) = (y(*ratio), COLOURS[index % COLOURS.len()]);
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{at:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                x + 2.0,
                BAR_PX - 4.0,
                y(0.0) - at
            );
            text(&mut svg, x + BAR_PX / 2.0, at - 4.0, "middle", 10, &format!("{ratio:.2}"));
        }
        let middle = left + BAR_PX * group.ratios.len() as f64 / 2.0;
        // Names are longer than two bars are wide.
        let below = y(0.0) + if number % 2 == 0 { 18.0 } else { 34.0 };
        text(&mut svg, middle, below, "middle", 12, &group.name);
    }
    let (one, end) = (y(1.0), LEFT_PX + plot_px);
    let _ = writeln!(svg, "<path d=\"M{LEFT_PX:.1} {one:.1}H{end:.1}\" stroke=\"#aa2222\" stroke-dasharray=\"5 3\"/>");
    text(
        &mut svg,
        LEFT_PX,
        height - 8.0,
        "start",
        11,
        "Time under Outswap, to time under the kernel's swap (1, dashed).",
    );
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements of a text, each with its attributes, if all are closed in order.
    fn elements(svg: &str) -> Vec<String> {
        let (mut open, mut all) = (Vec::new(), Vec::new());
        for tag in svg.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').expect("every tag ends");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name.to_owned())),
                None => {
                    assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
                    if !tag.ends_with('/') {
                        open.push(tag.split(' ').next().expect("a name").to_owned());
                    }
                    all.push(tag.to_owned());
                }
            }
        }
        assert!(open.is_empty(), "{open:?}");
        all
    }

    fn group(name: &str, ratios: &[Option<f64>]) -> Group {
        Group { name: name.to_owned(), ratios: ratios.to_vec() }
    }

    #[test]
    fn every_ratio_has_a_bar_and_what_was_not_measured_has_none() {
        let svg = svg("A & B", &[50, 70], &[group("a<b", &[Some(0.5), Some(0.25)]), group("c", &[None, Some(1.5)])]);
        let all = elements(&svg);
        // The background, two in the legend, and three bars.
        assert_eq!(all.iter().filter(|tag| tag.starts_with("rect ")).count(), 1 + 2 + 3);
        assert!(svg.contains("A &amp; B") && svg.contains("a&lt;b"));
        let heights: Vec<f64> = all
            .iter()
            .filter(|tag| tag.starts_with("rect x") && !tag.contains("y=\"38\""))
            .map(|tag| {
                tag.split("height=\"")
                    .nth(1)
                    .and_then(|t| t.split('"').next())
                    .expect("a height")
                    .parse()
                    .expect("a number")
            })
            .collect();
        assert!(
            (heights[0] - 2.0 * heights[1]).abs() < 0.2 && (heights[2] - 3.0 * heights[0]).abs() < 0.2,
            "{heights:?}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_chart_of_nothing_and_one_of_large_ratios_are_charts() {
        elements(&svg("nothing", &[50], &[]));
        let large = svg("large", &[50], &[group("a", &[Some(40.0)])]);
        elements(&large);
        assert!(large.contains(">40.00<"));
    }
}
