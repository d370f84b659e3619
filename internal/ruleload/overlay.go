package ruleload

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

// An overlay is the result of reading the overlay once. The zero value sets nothing.
type overlay struct {
	parsed      *rulesfile.Overlay
	fingerprint string
	err         error // kept only if the first overlay had faults: no rules can then be loaded
}

// newOverlay parses the files read from path. A folder without files sets nothing: Kubernetes
// mounts an empty one for an optional ConfigMap that does not exist.
func newOverlay(path string, files []rulesfile.File, err error) overlay {
	if errors.Is(err, sources.ErrNoFile) {
		err = nil
	}
	var parsed *rulesfile.Overlay
	if err == nil {
		parsed, err = rulesfile.ParseOverlay(files...)
	}
	if err != nil {
		return overlay{err: fmt.Errorf("the overlay %s: %w", path, err)}
	}
	return overlay{parsed: parsed, fingerprint: rulesfile.Fingerprint(files)}
}

// openOverlay reads the overlay, if the options name one. A path that does not exist is an error.
// In an existing folder, files may be added later, and all of them removed again. l.mu must be
// held.
func (l *Loader) openOverlay() error {
	path := l.options.Overlay
	if path == "" {
		return nil
	}
	l.overlayFile = sources.NewWatcher(path)
	files, err := l.overlayFile.Read()
	if errors.Is(err, sources.ErrNoFile) {
		l.log.Warn("no overlay yet", zap.String("overlay", path))
	}
	l.overlay = newOverlay(path, files, err)
	return l.overlay.err
}

// loadOverlay loads the last rules again with a new overlay. An overlay with faults does not
// replace the one in force.
func (l *Loader) loadOverlay(files []rulesfile.File, err error) {
	o := newOverlay(l.options.Overlay, files, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.overlayFault = o.err
	if o.err != nil {
		l.reportFailure(l.options.Overlay, o.err)
		return
	}
	l.overlay = o
	if l.files == nil {
		return
	}
	if err := l.apply(l.files); err != nil {
		l.reportRulesFailure(err)
	}
}
