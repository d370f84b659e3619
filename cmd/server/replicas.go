package main

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
)

// replicas holds the number of replicas that share the limits.
type replicas struct {
	count  atomic.Int64
	name   string // REPLICAS_DNS; "" if REPLICAS is the number
	lookup func(ctx context.Context, host string) ([]string, error)
	log    *zap.Logger
	memory bool // the counters are in memory, not shared
}

const (
	lookupInterval = 10 * time.Second
	lookupTimeout  = 2 * time.Second
)

func newReplicas(s *settings.Serve, log *zap.Logger) *replicas {
	r := &replicas{
		name: s.ReplicasDNS, lookup: net.DefaultResolver.LookupHost, log: log, memory: s.BackendType == settings.Memory,
	}
	r.set(s.Replicas)
	return r
}

func (r *replicas) number() int { return int(r.count.Load()) }

func (r *replicas) set(n int) {
	before := int(r.count.Swap(int64(n)))
	if n == before {
		return
	}
	switch {
	case r.memory && n > 1:
		r.log.Warn("counters in memory are per replica, so limits are multiplied by the replica count", zap.Int("replicas", n),
			zap.String("remedy", "use Redis, or one replica"))
	case before != 0:
		r.log.Info("replica count changed", zap.Int("replicas", n), zap.Int("replicas_before", before))
	}
}

// watch counts the replicas until ctx ends.
func (r *replicas) watch(ctx context.Context) {
	if r.name == "" {
		return
	}
	tick := time.NewTicker(lookupInterval)
	defer tick.Stop()
	failing := false
	for {
		failing = r.lookUp(ctx, failing)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookUp counts the replicas once, and keeps the old count if the lookup fails. It logs only the first of consecutive failures:
// failing is the result of the previous call.
func (r *replicas) lookUp(ctx context.Context, failing bool) (fails bool) {
	bounded, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := r.lookup(bounded, r.name)
	if err != nil {
		if !failing && ctx.Err() == nil {
			r.log.Warn("replicas not counted, their number stays", zap.String("replicas_dns", r.name), zap.Int("replicas", r.number()),
				zap.Error(err))
		}
		return true
	}
	if n := countHosts(addresses); n > 0 {
		r.set(n)
	}
	return false
}

// countHosts returns the number of hosts behind addresses. A dual-stack host has an address of each family, so the larger family
// counts.
func countHosts(addresses []string) int {
	v4, v6 := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		switch a = a.Unmap(); {
		case err != nil:
		case a.Is4():
			v4[a] = true
		default:
			v6[a] = true
		}
	}
	return max(len(v4), len(v6))
}
