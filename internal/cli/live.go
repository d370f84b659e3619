package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/rls"
)

// live gets the explanation, and the state of each limit, from a running server.
func (e *Explain) live(ctx context.Context, stdin io.Reader) (*explain.Record, error) {
	c, err := e.clientOf("--live", e.Live)
	if err != nil {
		return nil, err
	}
	sent := admin.ExplainRequest{Live: true}
	if e.Request != "" { // the server reports its faults
		name, body, err := e.body(stdin)
		if err != nil {
			return nil, err
		}
		if !json.Valid(body) {
			_, err := rls.ParseRequest(body)
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		sent.Request = body
	} else {
		all, err := parseDescriptors(e.Descriptors)
		if err != nil {
			return nil, err
		}
		for _, entries := range all {
			sent.Descriptors = append(sent.Descriptors, adminEntries(entries))
		}
		key := adminKey{Domain: e.Domain}
		if sent.Domain, err = key.domain(ctx, c); err != nil {
			return nil, err
		}
	}
	record, err := c.Explain(ctx, sent)
	if err != nil {
		return nil, err
	}
	return &record, nil
}
