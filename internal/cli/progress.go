package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"charm.land/bubbles/v2/progress"
	"charm.land/lipgloss/v2"
)

// A progressBar is a line on a terminal. The zero value shows nothing.
type progressBar struct {
	to    io.Writer // nil without a terminal
	start time.Time
	last  time.Time
	model progress.Model
}

func newProgressBar(to io.Writer) progressBar {
	if !isScreen(to) || os.Getenv("TERM") == "dumb" {
		return progressBar{}
	}
	now := time.Now()
	return progressBar{to: to, start: now, last: now, model: progress.New(progress.WithWidth(50))}
}

// due reports whether to draw the bar, at most ten times a second.
func (b *progressBar) due() bool { return b.to != nil && time.Since(b.last) > 100*time.Millisecond }

// show draws the bar. A total of 0 is unknown.
func (b *progressBar) show(done, total int64) {
	b.last = time.Now()
	text := fmt.Sprintf("%d MB", done>>20)
	if total > 0 {
		text = b.model.ViewAs(min(1, float64(done)/float64(total)))
	}
	if took := b.last.Sub(b.start); total > done && done > 0 {
		left := time.Duration(float64(took) * float64(total-done) / float64(done))
		text += fmt.Sprintf("  %v left", left.Round(time.Second))
	}
	_, _ = lipgloss.Fprint(b.to, "\r"+text+strings.Repeat(" ", 12)+"\r")
}

// clear removes the bar.
func (b *progressBar) clear() {
	if b.to != nil {
		_, _ = io.WriteString(b.to, "\r\x1b[2K")
	}
}
