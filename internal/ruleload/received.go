package ruleload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/atomicfile"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// A receivedRules stores the last rules from the control plane in a file, so that a process can
// start while the control plane is unreachable. Only its own goroutine writes, because the disk may
// hang.
type receivedRules struct {
	path  string
	log   *zap.Logger
	write func(path string, content func(io.Writer) error) error // [atomicfile.Write], except in tests
	next  chan []rulesfile.File                                  // the files from keep until run takes them; at most one element
	end   context.CancelFunc                                     // ends run
	ended chan struct{}                                          // closed when run has ended

	// After start, only run may use the fields below.
	saved   string // fingerprint of the rules in the file; "" if unknown
	last    []rulesfile.File
	wanted  string // fingerprint of last; "" before the first save
	failure string // of the last save; "" if it succeeded
}

func newReceivedRules(path string, log *zap.Logger) *receivedRules {
	return &receivedRules{
		path: path, log: log, write: atomicfile.Write, next: make(chan []rulesfile.File, 1), ended: make(chan struct{}),
	}
}

// start starts the goroutine that saves, which ends at close.
func (r *receivedRules) start() {
	var ctx context.Context
	ctx, r.end = context.WithCancel(context.Background())
	go func() {
		defer close(r.ended)
		r.run(ctx)
	}()
}

// keep makes run save files, and skip older files that it has not begun to save. It does not wait.
// Calls must not overlap.
func (r *receivedRules) keep(files []rulesfile.File) {
	select {
	case <-r.next:
	default:
	}
	r.next <- files
}

// saveRetryInterval is the wait between attempts to save received rules, for example while the disk
// is full.
const saveRetryInterval = 10 * time.Second

// run saves the files from keep until ctx ends, and then the last ones. It repeats failed saves.
func (r *receivedRules) run(ctx context.Context) {
	retry := time.NewTicker(saveRetryInterval)
	defer retry.Stop()
	for {
		select {
		case files := <-r.next:
			r.save(files)
		case <-retry.C:
			r.saveUnsaved()
		case <-ctx.Done():
			select {
			case files := <-r.next:
				r.save(files)
			default:
				r.saveUnsaved()
			}
			return
		}
	}
}

// close waits until the last files from keep are saved or could not be, or until ctx ends. keep
// must not be called again.
func (r *receivedRules) close(ctx context.Context) error {
	r.end()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write %s: %w", r.path, ctx.Err())
	}
}

// A receivedContent is the JSON of the file.
type receivedContent struct {
	Files []receivedFile `json:"files"`
}

// A receivedFile is the JSON form of a [rulesfile.File].
type receivedFile struct {
	Name  string `json:"name"`
	Rules string `json:"rules"` // YAML
}

// read returns the stored rules, or nil if there are none.
func (r *receivedRules) read() []rulesfile.File {
	files, err := readReceived(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		r.log.Warn("saved xDS rules not read, waiting for the control plane", zap.String("rules_file", r.path), zap.Error(err))
		return nil
	}
	r.saved = rulesfile.Fingerprint(files)
	return files
}

func readReceived(path string) ([]rulesfile.File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var content receivedContent
	if json.Unmarshal(text, &content) != nil || content.Files == nil {
		return nil, fmt.Errorf(`%s is not {"files": [...]} as Weir writes it: `+
			`remove it, and Weir writes a new one when the control plane sends rules`, path)
	}
	files := []rulesfile.File{}
	for _, f := range content.Files {
		files = append(files, rulesfile.File{Name: f.Name, Data: []byte(f.Rules), Generated: true})
	}
	return files, nil
}

// save replaces the stored rules, see [receivedRules.saveUnsaved].
func (r *receivedRules) save(files []rulesfile.File) {
	r.last, r.wanted = files, rulesfile.Fingerprint(files)
	r.saveUnsaved()
}

// saveUnsaved writes the last rules, unless the file has them. On an error it keeps the old file,
// and logs a warning unless the error repeats.
func (r *receivedRules) saveUnsaved() {
	if r.wanted == "" || r.wanted == r.saved {
		return
	}
	content := receivedContent{[]receivedFile{}}
	for _, f := range r.last {
		content.Files = append(content.Files, receivedFile{f.Name, string(f.Data)})
	}
	if err := r.write(r.path, func(w io.Writer) error { return json.NewEncoder(w).Encode(content) }); err != nil {
		r.saved = "" // the error may be one after the rename
		if text := err.Error(); text != r.failure {
			r.failure = text
			r.log.Warn("received rules not saved", zap.String("rules_file", r.path), zap.Error(err))
		}
		return
	}
	if r.failure != "" {
		r.log.Info("received rules saved", zap.String("rules_file", r.path))
	}
	r.saved, r.failure = r.wanted, ""
}
