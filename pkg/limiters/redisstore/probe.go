package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A ProbeResult describes a Redis that answers.
type ProbeResult struct {
	// RoundTrip is the shortest duration of a few calls without operations, in a cluster to the
	// nearest master. If it exceeds the timeout, every Take would fail.
	RoundTrip time.Duration
	// EvictionPolicy is the maxmemory-policy, or "" if INFO failed or does not state it. In a
	// cluster, a policy that may evict counters takes precedence, and then an unknown one.
	EvictionPolicy string
}

// noEviction is the only policy under which Redis never evicts counters.
const noEviction = "noeviction"

// MayEvict reports whether Redis may evict counters. It returns false if the policy is unknown.
func (r ProbeResult) MayEvict() bool { return r.EvictionPolicy != "" && r.EvictionPolicy != noEviction }

// Probe connects to all masters concurrently if necessary, and loads the script for the first Take.
// It fails only if every master fails.
func (s *Store) Probe(ctx context.Context) (ProbeResult, error) {
	if !s.enter() {
		return ProbeResult{}, ErrClosed
	}
	defer s.running.Done()
	ctx, cancel := context.WithTimeout(ctx, s.connectTimeout)
	defer cancel()
	masters, err := s.topology.masters(ctx)
	var probing sync.WaitGroup
	var mu sync.Mutex
	var results []ProbeResult
	for _, m := range masters {
		probing.Go(func() {
			result, probeErr := probe(ctx, m.client)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case probeErr == nil:
				results = append(results, result)
			case m.node != "":
				err = fmt.Errorf("node %s: %w", m.node, probeErr)
			default:
				err = probeErr
			}
		})
	}
	probing.Wait()
	if len(results) == 0 {
		return ProbeResult{}, s.failure("probe", err)
	}
	all := results[0]
	for _, r := range results[1:] {
		all.RoundTrip = min(all.RoundTrip, r.RoundTrip)
		if r.MayEvict() || r.EvictionPolicy == "" && !all.MayEvict() {
			all.EvictionPolicy = r.EvictionPolicy
		}
	}
	return all, nil
}

// probe connects and loads the script before it measures.
func probe(ctx context.Context, client redis.UniversalClient) (r ProbeResult, err error) {
	const calls = 3
	script := newScriptCaller(client)
	r.RoundTrip, err = script.ping(ctx)
	for i := 0; i < calls && err == nil; i++ {
		var took time.Duration
		took, err = script.ping(ctx)
		r.RoundTrip = min(r.RoundTrip, took)
	}
	if err != nil {
		return r, err
	}
	info, _ := client.Info(ctx, "memory").Result() // decisions do not need it
	_, rest, _ := strings.Cut(info, "maxmemory_policy:")
	r.EvictionPolicy, _, _ = strings.Cut(rest, "\r\n")
	return r, nil
}
