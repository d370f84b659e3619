// Package ruleload keeps the rules in force. It loads them from files or from a control plane, and
// again when they change. Rules with faults leave the old rules in force.
//
// The package writes to the log itself, because nearly everything that it reports is only for the
// log.
package ruleload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// Options configures a [Loader].
type Options struct {
	Path         string      // the file or folder of the rules; unused with XDS
	Remedy       string      // how the user sets a readable Path; part of the error
	XDS          *xds.Source // the control plane that sends the rules, or nil; the Loader logs its events
	ReceivedPath string      // the file that keeps the rules from XDS for the next start; "" keeps none
	Overlay      string      // the file or folder of the overlay; "" without one

	MergeDomains, CalendarMonths bool // see [rulesfile.Options]

	// MayStartWithoutRules makes Open log an error of the rules or the overlay instead of returning
	// it.
	MayStartWithoutRules bool

	Log *zap.Logger
	// Loaded is called with the rules that have come into force, or with the error of a failed
	// load. Calls of Loaded do not overlap, and may call no method of the Loader except Rules.
	Loaded func(rules *descriptors.Rules, err error)
}

// A Loader holds the rules in force. It is safe for concurrent use.
type Loader struct {
	options     Options
	log         *zap.Logger
	file        *sources.Watcher // nil if the rules come over xDS
	overlayFile *sources.Watcher // nil without an overlay
	received    *receivedRules   // nil without ReceivedPath
	live        atomic.Pointer[descriptors.Rules]

	mu           sync.Mutex       // guards the fields below, and calls of options.Loaded
	files        []rulesfile.File // read last, with or without faults
	overlay      overlay          // read last without faults of its own
	readFault    error            // why the files that came last could not be read; nil if they were
	overlayFault error            // why the overlay that was read last is not in force; nil if it is
	current      string           // fingerprint of the files and the overlay in force; "" if there are none, or while a fault is reported
	lastError    string           // logged last; "" after a load without an error
}

// ErrNoRules is returned by [Open] if the file or folder of the rules cannot be read.
var ErrNoRules = errors.New("no rules")

// Open loads the rules from files. Rules from xDS arrive during [Loader.Watch]; until then, the
// rules of ReceivedPath are in force. The caller must close the Loader.
func Open(o Options) (*Loader, error) {
	l := &Loader{options: o, log: o.Log}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.openOverlay(); err != nil && !o.MayStartWithoutRules {
		return nil, err
	}
	if o.XDS != nil {
		if l.overlay.err != nil {
			l.reportRulesFailure(l.overlay.err)
		}
		if o.ReceivedPath != "" {
			l.received = newReceivedRules(o.ReceivedPath, o.Log)
			l.applyReceived()
			l.received.start()
		}
		return l, nil
	}
	l.file = sources.NewWatcher(o.Path)
	files, err := l.file.Read()
	if err != nil {
		err = fmt.Errorf("%w: %w (%s)", ErrNoRules, err, o.Remedy)
	} else {
		err = l.apply(files)
	}
	if err != nil && !o.MayStartWithoutRules {
		return nil, err
	}
	if err != nil {
		l.reportRulesFailure(err)
	}
	return l, nil
}

// applyReceived puts the rules that were last received in force. It logs errors. l.mu must be held.
func (l *Loader) applyReceived() {
	files := l.received.read()
	if files == nil {
		return
	}
	if err := l.apply(files); err != nil {
		l.reportFailure(l.received.path, err)
		return
	}
	l.log.Info("saved xDS rules are in force until the control plane answers", zap.String("rules_file", l.received.path))
}

// Rules returns the rules in force, or nil if there are none yet.
func (l *Loader) Rules() *descriptors.Rules { return l.live.Load() }

// Source returns the file, the folder or the control plane of the rules.
func (l *Loader) Source() string {
	if l.options.XDS != nil {
		return l.options.XDS.Server
	}
	return l.options.Path
}

// Watch loads the rules and the overlay when they change, until ctx ends.
func (l *Loader) Watch(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if l.overlayFile != nil {
		group.Go(func() error { return l.overlayFile.Watch(ctx, l.loadOverlay) })
	}
	group.Go(func() error {
		if l.options.XDS != nil {
			return l.watchXDS(ctx)
		}
		return l.file.Watch(ctx, func(files []rulesfile.File, err error) { _ = l.load(files, err) })
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Close saves the last rules from the control plane. It returns an error if ctx ends before. Watch
// must have ended.
func (l *Loader) Close(ctx context.Context) error {
	if l.received == nil {
		return nil
	}
	return l.received.close(ctx)
}

// watchXDS loads the rules that the control plane sends, until ctx ends.
func (l *Loader) watchXDS(ctx context.Context) error {
	source := *l.options.XDS
	source.HasRules = func() bool { return l.Rules() != nil }
	events := &connectionLog{log: l.log.With(zap.String("source", source.Server))}
	source.Notify = func(e xds.Event) {
		events.add(e)
		if l.options.XDS.Notify != nil {
			l.options.XDS.Notify(e)
		}
	}
	return source.Watch(ctx, l.load)
}

// Reload makes Watch read the files now. The result is logged even if nothing has changed.
func (l *Loader) Reload() {
	l.mu.Lock()
	l.lastError = ""
	l.mu.Unlock()
	for _, f := range []*sources.Watcher{l.file, l.overlayFile} {
		if f != nil {
			f.Reload()
		}
	}
}

// load puts the rules of files in force. On an error, also that of reading the files, it reports
// the error and keeps the old rules.
func (l *Loader) load(files []rulesfile.File, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readFault = err
	if err == nil {
		err = l.apply(files)
	}
	if err != nil {
		l.reportRulesFailure(err)
	}
	return err
}

// parseOptions returns the options for parsing rules with the overlay in force.
func (l *Loader) parseOptions() rulesfile.Options {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parseOptionsLocked()
}

// parseOptionsLocked requires that l.mu is held.
func (l *Loader) parseOptionsLocked() rulesfile.Options {
	return rulesfile.Options{
		MergeDomains:   l.options.MergeDomains,
		CalendarMonths: l.options.CalendarMonths,
		Overlay:        l.overlay.parsed,
	}
}

// apply puts files in force, unless they and the overlay already are. l.mu must be held.
func (l *Loader) apply(files []rulesfile.File) error {
	l.files = files
	if l.overlay.err != nil {
		return l.overlay.err
	}
	fingerprint := rulesfile.Fingerprint(files) + l.overlay.fingerprint
	if fingerprint == l.current {
		l.log.Info("rules unchanged", countFields(l.Rules())...)
		return nil
	}
	rules, warnings, err := rulesfile.ParseWith(l.parseOptionsLocked(), files...)
	if err != nil {
		return fmt.Errorf("the rules of %s have faults:\n%w", l.Source(), err)
	}
	old := l.live.Swap(rules)
	l.current = fingerprint
	l.lastError = ""
	logWarnings(l.log, warnings)
	l.options.Loaded(rules, nil)
	if fault := cmp.Or(l.overlayFault, l.readFault); fault != nil {
		l.options.Loaded(nil, fault) // so that the metrics do not show the fault as corrected
		l.current = ""               // so that the correction is reported, even if it changes nothing
	}
	logLoaded(l.log, old, rules)
	if l.received != nil {
		l.received.keep(files)
	}
	return nil
}

// reportRulesFailure is reportFailure for an error of the rules, or of the overlay of the start.
func (l *Loader) reportRulesFailure(err error) {
	source := l.Source()
	if errors.Is(err, l.overlay.err) {
		source = l.options.Overlay
	}
	l.reportFailure(source, err)
}

// reportFailure reports err, an error of source, and makes the next load parse its files even if
// they are unchanged. l.mu must be held.
func (l *Loader) reportFailure(source string, err error) {
	l.current = ""
	l.options.Loaded(nil, err)
	text := err.Error()
	if text == l.lastError {
		return
	}
	l.lastError = text
	fields := append(faultFields(err), zap.String("source", source), zap.Bool("old_rules_stay", l.Rules() != nil))
	l.log.Error("rules not loaded", fields...)
}
