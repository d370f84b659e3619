package good

// A stream has no status before its first event.
var stream int
