/* Of no use but that it wants executable stacks: see linked.c. */
int stack_library(void) { return 42; }
