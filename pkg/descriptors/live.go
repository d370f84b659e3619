package descriptors

import "sync/atomic"

// Live holds the rules of the moment. Its zero value holds none. It is safe for concurrent use.
type Live struct{ rules atomic.Pointer[Rules] }

// Rules are the rules of the moment, nil before the first successful Load. Who handles a request takes them once.
func (l *Live) Rules() *Rules { return l.rules.Load() }

// Load puts the rules of files in place of those held. On an error, which is [Faults], the old ones stay.
func (l *Live) Load(files []File) error {
	rules, err := Parse(files...)
	if err != nil {
		return err
	}
	l.rules.Store(rules)
	return nil
}
