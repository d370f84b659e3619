package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
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
	return fmt.Sprintf("%s; next attempt in %v", printable(what), wait.Round(time.Second/10))
}

// printableLines returns text with every control character but the ends of lines as an escape.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n")
}

// printable returns text with every control character as an escape, because users send the values of keys, and a terminal obeys some
// of them.
func printable(text string) string {
	for _, r := range text {
		if !strconv.IsPrint(r) || r == '\uFFFD' {
			quoted := strconv.Quote(text)
			return quoted[1 : len(quoted)-1]
		}
	}
	return text
}
