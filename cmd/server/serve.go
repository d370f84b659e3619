package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/gctune"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
)

type serveCommand struct {
	settings.Serve `embed:""`
}

// Run serves until a signal or the end of ctx. With LOG_FORMAT=json it logs an error; with text it
// prints the error, because a terminal shows a multi-line error better than a log line.
func (s *serveCommand) Run(ctx context.Context, streams cli.Streams) error {
	log, audit := newLogs(streams.Err, s.Level, s.LogFormat)
	defer func() { _ = log.Sync() }()
	err := s.runProcess(ctx, log, audit)
	switch {
	case err == nil:
		return nil
	case s.LogFormat == "json":
		log.Error("exiting", zap.Error(err))
	default:
		if errors.As(err, new(*fs.PathError)) {
			err = cli.ReadError(err)
		}
		fmt.Fprintln(streams.Err, "weir:", err)
	}
	return cli.Failed
}

// newLogs returns the log, and the log of changes by the admin API, which are logged at every
// level.
func newLogs(w io.Writer, level zapcore.Level, format string) (log, audit *zap.Logger) {
	if file, ok := w.(*os.File); ok {
		w = &logFile{File: file}
	}
	to := zapcore.Lock(zapcore.AddSync(w))
	return telemetry.NewLog(to, level, format), telemetry.NewLog(to, min(level, zapcore.InfoLevel), format)
}

func (s *serveCommand) runProcess(ctx context.Context, log, audit *zap.Logger) error {
	if err := s.logIneffective(log); err != nil {
		return err
	}
	limitMemory(log)

	// Signals stay caught until the process ends, so that a late signal does not kill a process
	// that is saving its counters.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may end before the process

	stop := newStopper(signals)
	defer stop.request() // ends the goroutine that waits for a signal
	p, err := openUntilSignal(ctx, &s.Serve, log, audit, stop)
	if errors.Is(err, errStopped) {
		log.Info("stopped before it listened")
		return nil
	}
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx, stop, reload) }()
	select {
	case err := <-ended:
		return err
	case <-stop.abandoned:
		// Closing a store under a call is unsafe. The end of the process closes its connections.
		// The exit code is 0, because a signal asked for the stop.
		log.Warn("stop timed out, ending with calls or a save in progress")
		return nil
	}
}

// logIneffective logs the settings that have no effect.
func (s *serveCommand) logIneffective(log *zap.Logger) error {
	ineffective, err := s.Ineffective(os.Environ())
	for _, v := range ineffective {
		level := zap.WarnLevel
		if v.Expected {
			level = zap.InfoLevel
		}
		log.Log(level, "setting has no effect", zap.String("setting", v.Setting), zap.String("reason", v.Reason))
	}
	return err
}

// errStopped is returned if a signal stops the process before it listens.
var errStopped = errors.New("stopped by a signal")

// openUntilSignal is [open], but the first signal ends the wait for ports. It ends a longer wait,
// such as that for a file on a disk that hangs, after forcedStopTimeout. Then the error is
// errStopped.
func openUntilSignal(ctx context.Context, s *settings.Serve, log, audit *zap.Logger, stop *stopper) (*process, error) {
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stop.requested, cancel)()
	var p *process
	var err error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		p, err = open(opening, s, log, audit)
	}()
	select {
	case <-opened:
	case <-stop.requested.Done():
		if !closesWithin(opened, forcedStopTimeout) {
			log.Warn("start timed out after a signal, ending with a file or a connection not opened")
			return nil, errStopped
		}
	}
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return nil, errStopped
	}
	return p, err
}

// limitMemory sets GOMEMLIMIT from the cgroup, so that the garbage collector runs more often before
// the kernel kills the process.
func limitMemory(log *zap.Logger) {
	limit, err := gctune.LimitMemory()
	switch {
	case err != nil:
		log.Debug("no memory limit from a cgroup", zap.Error(err))
	case limit < math.MaxInt64:
		log.Info("memory limit set", zap.Int64("bytes", limit))
	}
}
