package main

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
)

// replicas is how many processes share the limits, as far as is known.
type replicas struct {
	count  atomic.Int64
	name   string // whose addresses are counted; "" for none
	lookup func(ctx context.Context, host string) ([]string, error)
	log    *zap.Logger
	memory bool // each has counters of its own
}

const (
	replicasEvery  = 10 * time.Second
	replicasWithin = 2 * time.Second
)

func newReplicas(s *settings.Serve, log *zap.Logger) *replicas {
	r := &replicas{
		name: s.ReplicasDNS, lookup: net.DefaultResolver.LookupHost, log: log, memory: s.BackendType == settings.Memory,
	}
	r.set(s.Replicas)
	return r
}

func (r *replicas) now() int { return int(r.count.Load()) }

func (r *replicas) set(n int) {
	before := int(r.count.Swap(int64(n)))
	if n == before {
		return
	}
	switch {
	case r.memory && n > 1:
		r.log.Warn("counters in memory are each replica's own: a client gets each limit as many times; use Redis, or one replica",
			zap.Int("replicas", n))
	case before != 0:
		r.log.Info("replicas that share the limits", zap.Int("now", n), zap.Int("before", before))
	}
}

// watch counts replicas until ctx ends.
func (r *replicas) watch(ctx context.Context) {
	if r.name == "" {
		return
	}
	tick := time.NewTicker(replicasEvery)
	defer tick.Stop()
	failing := false
	for {
		failing = r.look(ctx, failing)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look counts once. What it cannot see stays as it was, and is told once.
func (r *replicas) look(ctx context.Context, failing bool) (fails bool) {
	asking, cancel := context.WithTimeout(ctx, replicasWithin)
	defer cancel()
	addresses, err := r.lookup(asking, r.name)
	if err != nil {
		if !failing && ctx.Err() == nil {
			r.log.Warn("replicas not counted: their number stays", zap.String("REPLICAS_DNS", r.name), zap.Int("replicas", r.now()),
				zap.Error(err))
		}
		return true
	}
	slices.Sort(addresses)
	if n := len(slices.Compact(addresses)); n > 0 {
		r.set(n)
	}
	return false
}
