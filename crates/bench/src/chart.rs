//! Groups of bars, as SVG.
use std::fmt::Write as _;

const BAR_PX: f64 = 26.0;
const GAP_PX: f64 = 24.0;
const LEFT_PX: f64 = 64.0;
const RIGHT_PX: f64 = 24.0;
const TITLE_PX: f64 = 32.0;
const LEGEND_PX: f64 = 20.0;
const PLOT_PX: f64 = 260.0;
const BOTTOM_PX: f64 = 64.0;
/// About what a letter of the smaller texts takes.
const LETTER_PX: f64 = 7.0;
/// One for each bar of a group; further ones begin again.
const COLOURS: [&str; 6] = ["#1f5fa8", "#7fb2e5", "#c96a1b", "#e8b07a", "#3c8a4e", "#9fd0a8"];

/// A group of bars.
pub struct Group {
    /// What it is of.
    pub name: String,
    /// A value for each entry of the legend, where it was measured.
    pub values: Vec<Option<f64>>,
}

/// A chart.
pub struct Chart<'a> {
    /// Above it.
    pub title: &'a str,
    /// What the bars of each group are.
    pub legend: &'a [String],
    /// The groups.
    pub groups: &'a [Group],
    /// A value at which a dashed line is drawn.
    pub mark: Option<f64>,
    /// Below it: what is measured, and in which unit.
    pub caption: &'a str,
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

/// The smallest of 1, 2, 2.5 and 5 times a power of ten with which five steps reach `most`.
fn step(most: f64) -> f64 {
    let least = (most / 5.0).max(1e-9);
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|n| n * power).find(|&step| step >= least * 0.999).unwrap_or(least)
}

fn shown(value: f64) -> String {
    let digits = if value.abs() >= 100.0 { 0 } else { 2 };
    format!("{value:.digits$}")
}

impl Chart<'_> {
    /// Draws it.
    pub fn svg(&self) -> String {
        let bars = self.legend.len().max(1) as f64;
        let group_px = BAR_PX * bars + GAP_PX;
        let plot_px = (group_px * self.groups.len() as f64).max(480.0);
        let (places, rows) = self.legend_places(plot_px);
        let top_px = TITLE_PX + LEGEND_PX * rows as f64 + 20.0;
        let (width, height) = (LEFT_PX + plot_px + RIGHT_PX, top_px + PLOT_PX + BOTTOM_PX);
        let known = self.groups.iter().flat_map(|group| &group.values).flatten().copied();
        let most = known.chain(self.mark).filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = step(if most > 0.0 { most } else { 1.0 });
        let top = (most / step).ceil().max(1.0) * step;
        let y = |value: f64| top_px + PLOT_PX * (1.0 - value / top);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" fill=\"#222222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        text(&mut svg, LEFT_PX, 24.0, "start", 15, self.title);
        for (index, (name, (x, row))) in self.legend.iter().zip(places).enumerate() {
            let (at, colour) = (TITLE_PX + 6.0 + row as f64 * LEGEND_PX, COLOURS[index % COLOURS.len()]);
            let _ = writeln!(
                svg,
                "<rect class=\"legend\" x=\"{x:.1}\" y=\"{at:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
            );
            text(&mut svg, x + 18.0, at + 11.0, "start", 12, name);
        }
        let end = LEFT_PX + plot_px;
        for mark in 0..=(top / step).round() as u32 {
            let value = mark as f64 * step;
            let at = y(value);
            let _ = writeln!(svg, "<path d=\"M{LEFT_PX:.1} {at:.1}H{end:.1}\" stroke=\"#dddddd\"/>");
            text(&mut svg, LEFT_PX - 8.0, at + 4.0, "end", 11, &shown(value));
        }
        for (number, group) in self.groups.iter().enumerate() {
            let left = LEFT_PX + number as f64 * group_px + GAP_PX / 2.0;
            for (index, value) in group.values.iter().enumerate() {
                let x = left + index as f64 * BAR_PX;
                let Some(value) = value.filter(|value| value.is_finite()) else {
                    text(&mut svg, x + BAR_PX / 2.0, y(0.0) - 5.0, "middle", 10, "-");
                    continue;
                };
                let (at, colour) = (y(value.max(0.0)), COLOURS[index % COLOURS.len()]);
                let _ = writeln!(
                    svg,
                    "<rect class=\"bar\" x=\"{:.1}\" y=\"{at:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                    x + 2.0,
                    BAR_PX - 4.0,
                    y(0.0) - at
                );
                text(&mut svg, x + BAR_PX / 2.0, at - 4.0, "middle", 10, &shown(value));
            }
            let middle = left + BAR_PX * bars / 2.0;
            // Names can be longer than a few bars are wide.
            let below = y(0.0) + if number % 2 == 0 { 18.0 } else { 34.0 };
            text(&mut svg, middle, below, "middle", 12, &group.name);
        }
        if let Some(mark) = self.mark {
            let at = y(mark);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT_PX:.1} {at:.1}H{end:.1}\" stroke=\"#aa2222\" stroke-dasharray=\"5 3\"/>"
            );
        }
        text(&mut svg, LEFT_PX, height - 8.0, "start", 11, self.caption);
        svg + "</svg>\n"
    }

    /// Where each entry of the legend stands: from the left, and in which row; and how many rows there are.
    fn legend_places(&self, plot_px: f64) -> (Vec<(f64, usize)>, usize) {
        let (mut x, mut row) = (LEFT_PX, 0);
        let places = self.legend.iter().map(|name| {
            let width = 36.0 + LETTER_PX * name.chars().count() as f64;
            if x > LEFT_PX && x + width > LEFT_PX + plot_px {
                (x, row) = (LEFT_PX, row + 1);
            }
            let place = (x, row);
            x += width;
            place
        });
        let places: Vec<(f64, usize)> = places.collect();
        (places, row + 1)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The elements of a text, each with its attributes, if all are closed in order.
    pub fn elements(svg: &str) -> Vec<String> {
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

    fn group(name: &str, values: &[Option<f64>]) -> Group {
        Group { name: name.to_owned(), values: values.to_vec() }
    }

    fn drawn(groups: &[Group], mark: Option<f64>) -> String {
        let legend = ["one".to_owned(), "the other & more".to_owned()];
        Chart { title: "A & B", legend: &legend, groups, mark, caption: "us a page" }.svg()
    }

    #[test]
    fn every_value_has_a_bar_and_what_was_not_measured_has_none() {
        let groups = [group("a<b", &[Some(0.5), Some(0.25)]), group("c", &[None, Some(1.5)])];
        let svg = drawn(&groups, Some(1.0));
        let all = elements(&svg);
        assert_eq!(all.iter().filter(|tag| tag.starts_with("rect class=\"legend\"")).count(), 2);
        assert!(svg.contains("A &amp; B") && svg.contains("a&lt;b") && svg.contains("stroke-dasharray"));
        let heights: Vec<f64> = all
            .iter()
            .filter_map(|tag| tag.strip_prefix("rect class=\"bar\""))
            .map(|tag| {
                let height = tag.split("height=\"").nth(1).and_then(|t| t.split('"').next());
                height.expect("a height").parse().expect("a number")
            })
            .collect();
        assert_eq!(heights.len(), 3);
        assert!(
            (heights[0] - 2.0 * heights[1]).abs() < 0.2 && (heights[2] - 3.0 * heights[0]).abs() < 0.2,
            "{heights:?}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn charts_of_nothing_of_zeros_and_of_large_values_are_charts() {
        elements(&drawn(&[], None));
        assert!(!drawn(&[group("a", &[Some(0.0), Some(f64::NAN)])], None).contains("NaN"));
        let large = drawn(&[group("a", &[Some(41_000.0), None])], None);
        elements(&large);
        assert!(large.contains(">41000<"));
    }

    #[test]
    fn five_steps_reach_the_largest_value() {
        for (most, expected) in [(1.0, 0.2), (4.9, 1.0), (12.0, 2.5), (99.0, 20.0), (26.0, 10.0), (0.011, 0.0025)] {
            assert!((step(most) - expected).abs() < 1e-12, "{most}: {}", step(most));
        }
    }
}
