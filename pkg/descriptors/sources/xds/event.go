package xds

import "time"

// A Kind is a kind of [Event].
type Kind int

// The kinds of events.
const (
	Connected    Kind = iota // a stream is open
	Disconnected             // the stream ended or could not be opened; Err is nil only at the end of Watch
	Accepted                 // a push was applied
	Unchanged                // a push repeated the one accepted last
	Rejected                 // a push was rejected
)

// String returns the kind in one lower-case word.
func (k Kind) String() string {
	return [...]string{"connected", "disconnected", "accepted", "unchanged", "rejected"}[k]
}

// An Event is a change of the connection, or a push.
type Event struct {
	Kind    Kind
	Version string        // of a push, as the server names it
	Files   int           // of Accepted and Unchanged: the number of resources
	Err     error         // of Disconnected and Rejected
	Retry   time.Duration // of Disconnected: the wait before the next connection
}

func (s *Source) notify(e Event) {
	if s.Notify != nil {
		s.Notify(e)
	}
}
