package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/admin/client"
)

// retries are the waits between attempts to reach a server.
var retries = backoff.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: .2}

// isRejected reports whether the server rejected a call, so that retrying is useless.
func isRejected(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Status < http.StatusInternalServerError && e.Status != http.StatusTooManyRequests
}

// printRetry prints the reason of a failed connection and the wait before the next attempt.
func printRetry(w io.Writer, err error, wait time.Duration) {
	fmt.Fprintf(w, "weir: %s\n", retryText(err, wait))
}

func retryText(err error, wait time.Duration) string {
	what := err.Error()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		what = "the server ended the stream"
	}
	return fmt.Sprintf("%s; next attempt in %v", terminal.Printable(what), wait.Round(time.Second/10))
}
