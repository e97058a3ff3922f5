//! A chart of the time ratios.
use crate::chart::{self, Chart};

/// A group of bars.
pub struct Group {
    /// The program.
    pub name: String,
    /// A ratio for each limit, where it was measured.
    pub ratios: Vec<Option<f64>>,
}

/// Draws it, as SVG. The line at 1 is the kernel's time.
pub fn svg(title: &str, percents: &[u32], groups: &[Group]) -> String {
    let legend: Vec<String> = percents.iter().map(|percent| format!("limit {percent} % of peak")).collect();
    let bars = |group: &Group| chart::Group { name: group.name.clone(), values: group.ratios.clone() };
    let groups: Vec<chart::Group> = groups.iter().map(bars).collect();
    let caption = "Time under Outswap, to time under the kernel's swap (1, dashed).";
    Chart { title, legend: &legend, groups: &groups, mark: Some(1.0), caption }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::tests::elements;

    #[test]
    fn each_limit_has_a_bar_for_each_program() {
        let group = |name: &str, ratios: &[Option<f64>]| Group { name: name.to_owned(), ratios: ratios.to_vec() };
        let svg = svg("programs", &[50, 70], &[group("a", &[Some(0.5), None]), group("b", &[Some(2.0), Some(1.5)])]);
        assert_eq!(elements(&svg).iter().filter(|tag| tag.starts_with("rect class=\"bar\"")).count(), 3);
        assert!(svg.contains("limit 70 % of peak") && svg.contains(">2.00<"));
    }
}
