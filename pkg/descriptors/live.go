package descriptors

import "sync/atomic"

// Live holds the rules of the moment. Its zero value holds none. It is safe for concurrent use.
type Live struct {
	rules   atomic.Pointer[Rules]
	options atomic.Pointer[Options]
}

// Rules are the rules of the moment, nil before the first successful Load. Who handles a request takes them once.
func (l *Live) Rules() *Rules { return l.rules.Load() }

// SetOptions sets how the next Load reads files. Without it they are read as by [Parse].
func (l *Live) SetOptions(o Options) { l.options.Store(&o) }

// Load puts the rules of files in place of those held. On an error, which is [Faults], the old ones stay.
func (l *Live) Load(files []File) error {
	var o Options
	if set := l.options.Load(); set != nil {
		o = *set
	}
	rules, err := ParseWith(o, files...)
	if err != nil {
		return err
	}
	l.rules.Store(rules)
	return nil
}
