package xds

import "time"

// A Kind is a kind of [Event].
type Kind int

// What happens to a source.
const (
	Connected    Kind = iota // a stream is open
	Disconnected             // it ended, or could not be opened: Err says why, nil if Watch ends; Retry tells the wait
	Accepted                 // a push was applied
	Unchanged                // a push was that accepted last
	Rejected                 // a push was refused: Err says why
)

// String is the kind in a word.
func (k Kind) String() string {
	switch k {
	case Connected:
		return "connected"
	case Disconnected:
		return "disconnected"
	case Accepted:
		return "accepted"
	case Unchanged:
		return "unchanged"
	case Rejected:
		return "rejected"
	}
	return "unknown"
}

// An Event is something that happened to a source.
type Event struct {
	Kind    Kind
	Version string        // of a push, as the server calls it
	Files   int           // of a push that was accepted or unchanged: how many resources it had
	Err     error         // of Disconnected and Rejected
	Retry   time.Duration // of Disconnected: until the next attempt
}

// A Status is what has happened to a source so far.
type Status struct {
	Connected   bool
	Version     string // accepted last, "" before the first
	Err         error  // of the last push or connection, nil if all is well
	Connections uint64 // streams opened
	Failures    uint64 // streams that ended or could not be opened
	Accepted    uint64 // pushes applied
	Unchanged   uint64 // pushes that were acknowledged as those accepted last
	Rejected    uint64 // pushes refused
}

// Status tells how the source is.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// happened keeps the status, and tells whoever wants to know.
func (s *Source) happened(e Event) {
	s.mu.Lock()
	switch e.Kind {
	case Connected:
		s.status.Connected = true
		s.status.Connections++
	case Disconnected:
		s.status.Connected = false
		if e.Err != nil {
			s.status.Failures++
		}
	case Accepted:
		s.status.Accepted++
	case Unchanged:
		s.status.Unchanged++
	case Rejected:
		s.status.Rejected++
	}
	s.status.Err = e.Err
	if e.Kind == Accepted || e.Kind == Unchanged {
		s.status.Version = e.Version
	}
	s.mu.Unlock()
	if s.Notify != nil {
		s.Notify(e)
	}
}
