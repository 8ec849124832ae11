package overlay

// SetFailpoint makes fn be called at every step where a process may die.
func SetFailpoint(fn func(step string)) { failpoint = fn }
