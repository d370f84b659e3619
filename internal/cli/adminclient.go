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

// isRefused reports whether the server has refused a call, so that another attempt is of no use.
func isRefused(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Status < http.StatusInternalServerError && e.Status != http.StatusTooManyRequests
}

// printRetry prints why a command is not connected, and when it tries again.
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
