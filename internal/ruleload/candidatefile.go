package ruleload

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources"
)

// A CandidateFile keeps candidate rules, which are compared with the rules in force. It parses them
// with the overlay in force. Its errors are only logged and counted. It is safe for concurrent use.
type CandidateFile struct {
	inForce *Loader
	file    *sources.Watcher
	use     func(*descriptors.Rules) (changed bool)
	log     *zap.Logger

	mu    sync.Mutex
	state CandidateFileState
}

// A CandidateFileState is the state of a [CandidateFile].
type CandidateFileState struct {
	Err    error // the last load's error
	Loads  int64 // without an error
	Faults int64 // loads with an error
}

// OpenCandidateFile loads a candidate from the file or folder path. It calls use with the candidate
// after each load, and with nil once the file is missing. use reports whether that is a change.
func (l *Loader) OpenCandidateFile(path string, use func(*descriptors.Rules) (changed bool), log *zap.Logger) *CandidateFile {
	c := &CandidateFile{inForce: l, file: sources.NewWatcher(path), use: use, log: log}
	c.load(c.file.Read())
	return c
}

// Watch loads the candidate when its file changes, until ctx ends.
func (c *CandidateFile) Watch(ctx context.Context) {
	_ = c.file.Watch(ctx, c.load) // the error is that of ctx
}

// Reload makes Watch load the candidate now, with the overlay now in force.
func (c *CandidateFile) Reload() { c.file.Reload() }

// State returns the current state.
func (c *CandidateFile) State() CandidateFileState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// load makes files the candidate. Files with faults leave the old candidate; a missing file removes
// it.
func (c *CandidateFile) load(files []rulesfile.File, err error) {
	var rules *descriptors.Rules
	if err == nil {
		rules, _, err = rulesfile.ParseWith(c.inForce.parseOptions(), files...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.state.Err
	c.state.Err = err
	if err != nil {
		c.state.Faults++
		c.handleFailure(err, before)
		return
	}
	c.state.Loads++
	if c.use(rules) || before != nil {
		c.log.Info("shadow file loaded", append(countFields(rules), zap.String("candidate_version", rules.Version()))...)
	}
}

// handleFailure removes a candidate whose file is missing. It logs err, unless err repeats the
// error of the load before.
func (c *CandidateFile) handleFailure(err, before error) {
	_, missingErr := os.Stat(c.file.Path) // err may be that of a dangling link in a folder, which is a fault
	missing := errors.Is(missingErr, fs.ErrNotExist) || errors.Is(err, sources.ErrNoFile)
	if missing {
		c.use(nil)
	}
	switch {
	case before != nil && err.Error() == before.Error():
	case missing:
		c.log.Warn("no shadow file, nothing is compared", zap.Error(err))
	default:
		c.log.Error("shadow file not loaded", faultFields(err)...)
	}
}
