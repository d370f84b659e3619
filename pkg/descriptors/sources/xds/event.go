package xds

import "time"

// A Kind is a kind of [Event].
type Kind int

// The kinds of events.
const (
	Connected    Kind = iota // a stream is open
	Disconnected             // the stream ended or could not be opened; Err is nil only at the end of Watch
	Accepted                 // a push was loaded
	Unchanged                // a push repeated the one accepted last
	Rejected                 // a push was rejected
)

var kindNames = [...]string{"connected", "disconnected", "accepted", "unchanged", "rejected"}

// String returns the kind in one lower-case word; "unknown" for any other value.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// An Event is a change of the connection, or a push.
type Event struct {
	Kind    Kind
	Version string        // the version of a push, as the server names it
	Files   int           // the number of resources; set for Accepted and Unchanged
	Err     error         // set for Disconnected and Rejected
	Retry   time.Duration // the wait before the next connection; set for Disconnected
}

func (s *Source) notify(e Event) {
	if s.Notify != nil {
		s.Notify(e)
	}
}
