package xds

import "time"

// SetTimeouts sets the timeouts of connecting and of the first reply; 0 means the default.
func (s *Source) SetTimeouts(connect, reply time.Duration) {
	s.connectTimeout, s.replyTimeout = connect, reply
}
