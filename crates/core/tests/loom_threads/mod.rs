//! Loom models of some threads that share a world.

use loom::sync::Arc;
use loom::thread;

/// Every interleaving with at most so many preemptions, or as many as `LOOM_MAX_PREEMPTIONS` says, of threads in a world that is made anew
/// each time, and looked at when they have ended. The first of them is the one that makes it.
pub fn model<W: 'static>(
    preemptions: usize,
    world: impl Fn() -> W + Send + Sync + 'static,
    threads: &'static [fn(&W)],
    after: impl Fn(&W) + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 200_000;
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.check(move || {
        let world = Arc::new(world());
        let others: Vec<_> = threads[1..]
            .iter()
            .map(|f| {
                let world = world.clone();
                thread::spawn(move || f(&world))
            })
            .collect();
        threads[0](&world);
        others.into_iter().for_each(|t| t.join().expect("no panic"));
        after(&world);
    });
}
