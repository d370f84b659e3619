package main

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// A ruleLoader holds the rules in force, and replaces them when files or the overlay change. Files with faults leave the old rules
// in force.
type ruleLoader struct {
	live  atomic.Pointer[descriptors.Rules] // nil: no rules yet
	merge bool                              // several files may have the same domain
	// calendarMonths makes month a calendar month, see rulesfile.Options.
	calendarMonths bool
	report         *ruleReport
	// replaced is called with the files of rules that have come into force, before the report; nil at start.
	replaced func([]rulesfile.File)

	mu      sync.Mutex       // guards the fields below, and calls of report
	files   []rulesfile.File // read last, with or without faults
	overlay overlay          // read last without faults of its own
	current string           // fingerprint of the files and the overlay in force; "" if there are none, or after a failed load
}

// An overlay is the result of reading the overlay once. The zero value sets nothing.
type overlay struct {
	parsed      *rulesfile.Overlay
	fingerprint string
	err         error // kept only if the first overlay had faults: no rules can then be loaded
}

// An overlayError is an error of reading or parsing the overlay.
type overlayError struct {
	path string
	err  error
}

func (e *overlayError) Error() string { return fmt.Sprintf("the overlay %s: %v", e.path, e.err) }

func (e *overlayError) Unwrap() error { return e.err }

// newOverlay parses the files read from path.
func newOverlay(path string, files []rulesfile.File, err error) overlay {
	var parsed *rulesfile.Overlay
	if err == nil {
		parsed, err = rulesfile.ParseOverlay(files...)
	}
	if err != nil {
		return overlay{err: &overlayError{path, err}}
	}
	return overlay{parsed: parsed, fingerprint: rulesfile.Fingerprint(files)}
}

// load puts the rules of files in force. On an error it reports the error and keeps the old rules.
func (l *ruleLoader) load(files []rulesfile.File, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.apply(files, err)
	if err != nil {
		l.failed(err)
	}
	return err
}

// loadOverlay reloads the last files with a new overlay. It ignores an overlay with faults.
func (l *ruleLoader) loadOverlay(o overlay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := o.err
	if err == nil {
		l.overlay = o
		if l.files == nil {
			return
		}
		err = l.apply(l.files, nil)
	}
	if err != nil {
		l.failed(err)
	}
}

// parseOptions returns the options for parsing rules with the overlay in force.
func (l *ruleLoader) parseOptions() rulesfile.Options {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.options()
}

// options is parseOptions for a caller that holds l.mu.
func (l *ruleLoader) options() rulesfile.Options {
	return rulesfile.Options{MergeDomains: l.merge, CalendarMonths: l.calendarMonths, Overlay: l.overlay.parsed}
}

// apply puts files in force, unless they and the overlay already are. l.mu must be held.
func (l *ruleLoader) apply(files []rulesfile.File, err error) error {
	if err != nil {
		return err
	}
	l.files = files
	if l.overlay.err != nil {
		return l.overlay.err
	}
	fingerprint := rulesfile.Fingerprint(files) + l.overlay.fingerprint
	if fingerprint == l.current {
		l.report.log.Info("rules unchanged", countFields(l.live.Load())...)
		return nil
	}
	rules, warnings, err := rulesfile.ParseWith(l.options(), files...)
	if err != nil {
		return fmt.Errorf("the rules of %s have faults:\n%w", l.report.source, err)
	}
	old := l.live.Swap(rules)
	l.current = fingerprint
	if l.replaced != nil {
		l.replaced(files)
	}
	l.report.loaded(old, rules, warnings)
	return nil
}

// failed reports err and makes the next load parse its files even if they are unchanged. l.mu must be held.
func (l *ruleLoader) failed(err error) {
	l.current = ""
	l.report.failed(err, l.live.Load() != nil)
}

// logAgain makes the next failed load log its error, even if it repeats the last one.
func (l *ruleLoader) logAgain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.logAgain()
}
