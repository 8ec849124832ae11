package overlay

// failpoint is called where a process may die between two steps of a change;
// tests replace it to die there.
var failpoint = func(step string) {}
