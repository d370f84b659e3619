// Package simulate runs rules over recorded or synthetic requests, and reports which requests and
// keys the limits deny.
//
//	result, err := simulate.Run(ctx, rules, recording, simulate.Options{Clients: []simulate.Model{simulate.Obey}})
//
// Each client model has a [replay.Replayer] of its own, which runs the code of the server with a
// virtual clock. A simulation is deterministic: equal rules, requests and options have equal
// results.
package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
	"github.com/weir-rls/weir/pkg/replay"
)

// A Model is how clients react to a denial. Every model sends the recorded requests at their times.
// A retry is the same request at a later time, and precedes a recorded request of the same time.
// Retries after the time of the last recorded request are not sent.
type Model string

// The client models. Real clients are probably between them, so their results form an interval.
const (
	// Drop never sends a denied request again.
	Drop Model = "drop"
	// Obey sends a denied request again after the Retry-After of each denial: the wait in whole
	// seconds, rounded up, at least 1. It gives up after 3 retries, or immediately if the request
	// can never fit.
	Obey Model = "obey"
	// Hammer sends a denied request again every second. It gives up after 5 retries.
	Hammer Model = "hammer"
)

const (
	obeyRetries    = 3
	hammerInterval = time.Second
	hammerRetries  = 5
)

// Options configures [Run]. The zero value is the default configuration.
type Options struct {
	// Replay holds the settings of the server. Here its MaxBytes defaults to 512 MiB, for each
	// client model.
	Replay replay.Options
	// Clients are the client models besides Drop, which is always simulated.
	Clients []Model
	// MaxWaiting bounds the waiting retries of each model. Default 100,000.
	MaxWaiting int
	// SampleShare returns the fraction of all keys that the recording has, above 0 and at most 1.
	// Run calls it after the last line, when all notes of recorders are known. Default: 1, all
	// keys.
	SampleShare func() (float64, error)
	// MaxKeys bounds the keys that have statistics, over all limits. Default 1,000,000.
	MaxKeys int
	// MaxEntries bounds the hits that are kept for comparisons, over all keys. Default 8,000,000,
	// or 192 MB. Beyond it there is no [Comparison].
	MaxEntries int
}

func (o Options) withDefaults() Options {
	o.MaxWaiting, o.MaxKeys, o.MaxEntries = cmp.Or(o.MaxWaiting, 100_000), cmp.Or(o.MaxKeys, 1_000_000), cmp.Or(o.MaxEntries, 8_000_000)
	o.Replay.MaxBytes = cmp.Or(o.Replay.MaxBytes, 512<<20)
	if o.SampleShare == nil {
		o.SampleShare = func() (float64, error) { return 1, nil }
	}
	return o
}

// A LineReader returns the requests of a recording in the order of their times, and then [io.EOF].
// [recording.MultiReader] and [Synthetic] are LineReaders. A LineReader must not reuse the memory
// of a line.
type LineReader interface {
	Next(into *recording.Line) error
}

// batchSize is the number of lines that a client model receives at once.
const batchSize = 256

// Run simulates all requests of a recording or load. It reads lines on the goroutine of the caller.
// It returns the error of the reader or of SampleShare, or that of ctx if ctx has ended.
func Run(ctx context.Context, rules *descriptors.Rules, lines LineReader, o Options) (*Result, error) {
	o = o.withDefaults()
	rows := newLimitRows(rules)
	stats := newStats(rules, rows, o)
	clients := []*client{newClient(Drop, rules, rows, o)}
	clients[0].stats = stats
	for _, m := range o.Clients {
		switch m {
		case Drop:
		case Obey, Hammer:
			clients = append(clients, newClient(m, rules, rows, o))
		default:
			return nil, fmt.Errorf("unknown client model %q: want one of %q", m, []Model{Drop, Obey, Hammer})
		}
	}
	if err := feed(ctx, lines, clients); err != nil {
		return nil, err
	}
	share, err := o.SampleShare()
	if err != nil {
		return nil, err
	}
	return stats.finish(rules, clients, share), nil
}

// feed sends all lines to all clients, each on a goroutine of its own.
func feed(ctx context.Context, lines LineReader, clients []*client) error {
	var working sync.WaitGroup
	inputs := make([]chan []recording.Line, len(clients))
	for i, c := range clients {
		in := make(chan []recording.Line, 4)
		inputs[i] = in
		working.Go(func() {
			for batch := range in {
				for j := range batch {
					c.recorded(&batch[j])
				}
			}
		})
	}
	defer working.Wait()
	defer func() {
		for _, in := range inputs {
			close(in)
		}
	}()
	for {
		batch, err := nextBatch(lines)
		for _, in := range inputs {
			in <- batch
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

func nextBatch(lines LineReader) ([]recording.Line, error) {
	batch := make([]recording.Line, 0, batchSize)
	for len(batch) < batchSize {
		batch = append(batch, recording.Line{})
		if err := lines.Next(&batch[len(batch)-1]); err != nil {
			return batch[:len(batch)-1], err
		}
	}
	return batch, nil
}
