package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/pkg/admin/api"
)

// maxLineBytes bounds a line of the stream, and so the JSON of an event. A request of the largest
// size, 4 MiB, has at most 24 MiB with its escapes.
const maxLineBytes = 32 << 20

// ErrFilterKey is the error of [Client.Decisions] for an entry whose key has a '='. The server ends
// the key at its first '='.
var ErrFilterKey = errors.New("the key of an entry that selects decisions has a '=': select them by domain and rule")

// Decisions calls decided with each decision that a filter selects. It returns when ctx ends, a
// function returns an error, or the stream ends. dropped gets the number of decisions that the
// client was too slow for. A nil dropped is not called.
//
// At the end of ctx the error is that of ctx. If the server ends the stream, it is
// [io.ErrUnexpectedEOF].
func (c *Client) Decisions(ctx context.Context, f api.Filter, decided func(api.Decision) error, dropped func(int64) error) error {
	if strings.Contains(f.Entry[0], "=") {
		return ErrFilterKey
	}
	response, err := c.send(ctx, http.MethodGet, "/v1/decisions", queryOf(f), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxLineBytes)
	event := ""
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			event = value
		case "data":
			if err := dispatch(event, value, decided, dropped); err != nil {
				return err
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line of the stream of %s/v1/decisions has more than %d bytes, so the stream is not that of an admin API: check the address",
			c.base.Redacted(), maxLineBytes)
	}
	if err := errors.Join(ctx.Err(), lines.Err()); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

func queryOf(f api.Filter) url.Values {
	query := url.Values{}
	setIfGiven(query, "domain", f.Domain)
	setIfGiven(query, "rule", f.Rule)
	setIfGiven(query, "outcome", f.Outcome)
	entry := f.Entry[0]
	if entry != "" && f.Entry[1] != "" {
		entry += "=" + f.Entry[1]
	}
	setIfGiven(query, "entry", entry)
	if f.Sample != 0 {
		query.Set("sample", strconv.FormatFloat(f.Sample, 'g', -1, 64))
	}
	return query
}

// dispatch calls the function for an event. It ignores other events, which a later version may
// send.
func dispatch(event, data string, decided func(api.Decision) error, dropped func(int64) error) error {
	switch event {
	case "decision":
		var d api.Decision
		if err := json.Unmarshal([]byte(data), &d); err != nil {
			return fmt.Errorf("the stream is not that of an admin API: check the address (%w)", err)
		}
		return decided(d)
	case "dropped":
		var d struct{ Dropped int64 }
		if err := json.Unmarshal([]byte(data), &d); err != nil || dropped == nil {
			return err
		}
		return dropped(d.Dropped)
	}
	return nil
}
