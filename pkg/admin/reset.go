package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// The routes that change states.
const (
	resetPath        = "/v1/keys/reset"
	resetByEntryPath = "/v1/keys/reset-by-entry"
)

// A Change is a change of states, made or refused.
type Change struct {
	Caller  string // the start of a token's SHA-256, or the subject of a certificate
	Action  string // the path of the route
	Domain  string
	KeyHash string // the first key's hash; empty if the request names none
	Outcome string // Done, Refused or Failed
	Detail  string // the reason of a refusal, or the size of the change; it has no values of users
}

// The outcomes of a [Change].
const (
	Done    = "done"
	Refused = "refused" // nothing has changed
	Failed  = "failed"  // some keys may have been reset
)

// Resets removes the states of keys from the store, and the denials that replicas remember.
// notified reports whether the other replicas were notified; ignore it if there is an error.
type Resets interface {
	Reset(ctx context.Context, keys []limiters.StateName) (found []bool, notified bool, err error)
	// ResetByEntry makes one step of a pass over all keys, as [limiters.Store] does.
	ResetByEntry(ctx context.Context, domain string, entry descriptors.Entry, cursor string) (done limiters.Progress, notified bool, err error)
}

// refuse audits a change that is refused, with err as the detail if there is none, and returns err.
func (a *API) refuse(ctx context.Context, change Change, err error) error {
	change.Outcome, change.Detail = Refused, cmp.Or(change.Detail, err.Error())
	a.audit(ctx, change)
	return err
}

// failChange audits a change that the store failed to make, and returns the error for the caller.
func (a *API) failChange(ctx context.Context, change Change, reason error) error {
	change.Outcome, change.Detail = Failed, "the store failed"
	a.audit(ctx, change)
	return a.storeFailed(ctx, change.Action, reason)
}

func (a *API) reset(ctx context.Context, in *body[api.KeyRequest]) (*body[api.KeyReset], error) {
	change := Change{Action: resetPath, Domain: in.Body.Domain}
	rules, targets, err := a.findTargets(&in.Body)
	switch {
	case errors.Is(err, errNoRules):
		return nil, a.refuse(ctx, change, err)
	case err != nil:
		change.Domain, change.Detail = "", "no rules have the domain, or the descriptor is invalid"
		return nil, a.refuse(ctx, change, err)
	}
	limits, states := a.resetsOf(targets)
	if len(states) == 0 {
		return nil, a.refuse(ctx, change, huma.Error404NotFound("no limit applies to this descriptor: "+cmp.Or(keyHint(rules, &in.Body), "weir explain --live or POST /v1/explain shows why")))
	}
	change.KeyHash = limits[0].KeyHash
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	found, notified, err := a.options.Resets.Reset(ctx, states)
	if err != nil {
		return nil, a.failChange(ctx, change, err)
	}
	n := 0
	for i := range limits {
		if i < len(found) && found[i] {
			limits[i].Reset = true
			n++
		}
	}
	if n == 0 {
		return nil, a.refuse(ctx, change, huma.Error404NotFound("nothing is stored for this key: it was never hit, or it has fully reset. Check the domain and every entry"))
	}
	change.Outcome, change.Detail = Done, fmt.Sprintf("limits reset: %d of %d, other replicas notified: %t", n, len(states), notified)
	a.audit(ctx, change)
	return &body[api.KeyReset]{api.KeyReset{
		Domain: in.Body.Domain, Descriptor: in.Body.Descriptor, RulesVersion: rules.Version(), Limits: limits, Notified: notified,
	}}, nil
}

// resetsOf returns the limits of targets, and the name of the state of each.
func (a *API) resetsOf(targets []target) (limits []api.LimitReset, states []limiters.StateName) {
	for _, t := range targets {
		for i := range t.rule.Limits {
			l := &t.rule.Limits[i]
			states = append(states, l.StateName(t.key))
			limits = append(limits, api.LimitReset{
				Rule: t.rule.Name, Name: l.Name, Source: t.rule.Source(), KeyHash: descriptors.KeyHash(a.options.KeyHashSecret, t.key),
			})
		}
	}
	return limits, states
}

func (a *API) resetByEntry(ctx context.Context, in *body[api.ResetByEntryRequest]) (*body[api.ResetByEntryResult], error) {
	change := Change{Action: resetByEntryPath, Domain: in.Body.Domain}
	entry := entryOf(in.Body.Entry)
	switch _, err := requireDomain(a.options.Rules(), in.Body.Domain); {
	case errors.Is(err, errNoRules):
		return nil, a.refuse(ctx, change, err)
	case err != nil:
		change.Domain, change.Detail = "", "no rules have the domain"
		return nil, a.refuse(ctx, change, err)
	case entry.Key == "":
		return nil, a.refuse(ctx, change, huma.Error422UnprocessableEntity("entry[0]: the key must not be empty"))
	}
	// The audit log gets no values of users, only the hash of the domain with this entry.
	change.KeyHash = descriptors.KeyHash(a.options.KeyHashSecret, descriptors.Key(in.Body.Domain, nil, []descriptors.Entry{entry}))
	done, notified, err := a.options.Resets.ResetByEntry(ctx, in.Body.Domain, entry, in.Body.Cursor)
	switch {
	case errors.Is(err, limiters.ErrHashedKeys):
		return nil, a.refuse(ctx, change, huma.Error409Conflict("KEY_HASH_SECRET is set, so Redis has hashes of keys only, and none can be found by an entry: reset each full key with "+resetPath))
	case errors.Is(err, limiters.ErrCursor):
		return nil, a.refuse(ctx, change, huma.Error422UnprocessableEntity("cursor: not one that this route returned: leave it out to begin a pass"))
	case err != nil:
		return nil, a.failChange(ctx, change, err)
	}
	change.Outcome = Done
	change.Detail = fmt.Sprintf("entry %s: scanned %d, reset %d, complete: %t, other replicas notified: %t",
		descriptors.TruncateWithHash(entry.Key, 100), done.Scanned, done.Reset, done.Cursor == "", notified)
	a.audit(ctx, change)
	return &body[api.ResetByEntryResult]{api.ResetByEntryResult{Scanned: done.Scanned, Reset: done.Reset, Cursor: done.Cursor, Done: done.Cursor == "",
		Notified: notified}}, nil
}
