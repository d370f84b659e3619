package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"charm.land/bubbles/v2/progress"
	"charm.land/lipgloss/v2"

	"github.com/weir-rls/weir/pkg/recording"
)

// recordings reads the recordings in the arguments of a command as one, and shows the progress on a
// terminal.
type recordings struct {
	*recording.MultiReader
	paths []string
	bar   progressBar
	read  int64 // lines returned
	ended bool  // Next has returned io.EOF
}

// openRecordings opens recordings. The path - is standard input.
func openRecordings(paths []string, streams Streams) (*recordings, error) {
	reader, err := recording.Open(paths, streams.In)
	if err != nil {
		return nil, ReadError(err)
	}
	return &recordings{MultiReader: reader, paths: paths, bar: newProgressBar(streams.Err)}, nil
}

// Next writes the next line to into. The error is io.EOF at the end.
func (r *recordings) Next(into *recording.Line) error {
	err := r.MultiReader.Next(into)
	if err == nil {
		r.read++
	}
	r.ended = errors.Is(err, io.EOF)
	if r.read%4096 == 0 && r.bar.due() {
		r.bar.show(r.Bytes())
	}
	return err
}

// each calls do with each line. At the end of all recordings, or of ctx, it returns the error of
// ctx.
func (r *recordings) each(ctx context.Context, do func(*recording.Line) error) error {
	var line recording.Line
	for ctx.Err() == nil {
		err := r.Next(&line)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = do(&line)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// recordedShare returns the share of the keys that all recordings have: 1 without a note of a
// recorder. Call it after the last line, because a file may consist of several recordings.
func (r *recordings) recordedShare() (float64, error) {
	smallest, largest := 1.0, 0.0
	for _, note := range r.Notes() {
		smallest, largest = min(smallest, note.Sample), max(largest, note.Sample)
	}
	if smallest < largest {
		return 0, fmt.Errorf("the recordings are samples of different shares, from %g to %g: pass recordings of one share",
			smallest, largest)
	}
	return smallest, nil
}

// minShare is the smallest share of the keys from which the commands estimate. With a smaller one,
// an estimate would exceed an int64.
const minShare = 1e-9

// validShare reports whether the commands can estimate from a share of the keys.
func validShare(share float64) bool { return share >= minShare && share <= 1 }

// sampleShare returns given, the value of --sample-share, or [recordings.recordedShare] if it is 0.
func (r *recordings) sampleShare(given float64) (float64, error) {
	if given > 0 {
		return given, nil
	}
	share, err := r.recordedShare()
	if err != nil {
		return 0, fmt.Errorf("%w, or set --sample-share", err)
	}
	if !validShare(share) {
		return 0, fmt.Errorf("the recording states a sample of %g of the keys: set --sample-share to the correct share, from %v to 1", share, minShare)
	}
	return share, nil
}

// maxSkippedLines bounds the lines of a summary.
const maxSkippedLines = 20

var skippedTexts = map[recording.SkipReason]string{
	recording.TooLong: "too long", recording.Cut: "the last line is cut", recording.NotJSON: "no JSON object, or a value of a wrong type",
	recording.BadTime: "t is missing or no time", recording.NoDomain: "domain is missing",
	recording.BadDescriptors: "descriptors are missing or invalid",
	recording.BadHits:        "hits are not whole numbers", recording.OutOfOrder: "earlier than a line before",
	recording.BadOverrides: "overrides are not one limit or null for each descriptor", recording.Dropped: "the recorder dropped lines",
}

// finish removes the progress bar, prints warnings, and closes the recordings. It fails if they
// have no request that can be replayed.
func (r *recordings) finish(errs io.Writer) error {
	r.bar.clear()
	r.warnSkipped(errs)
	r.warnSecrets(errs)
	err := r.Close()
	switch {
	case !r.ended || r.read > 0:
		return err
	case len(r.Skipped()) > 0:
		return errors.Join(errors.New("no line can be replayed: pass lines of JSON as RECORD_PATH writes them (weir convert makes them "+
			"from an access log)"), err)
	}
	return errors.Join(fmt.Errorf("%s no requests: record some with RECORD_PATH, or convert an access log with weir convert", r.summary()), err)
}

// warnSkipped warns about skipped lines and unreadable files.
func (r *recordings) warnSkipped(errs io.Writer) {
	skipped := r.Skipped()
	for i, s := range skipped {
		switch {
		case i == maxSkippedLines:
			warn(errs, "lines of %d further kinds or files were skipped", len(skipped)-i)
			return
		case s.Reason == recording.Unreadable:
			warn(errs, "%s: %s", s.File, s.Error)
		default:
			warn(errs, "%s:%d: %s (%s), skipped lines of this kind: %d", s.File, s.First, skippedTexts[s.Reason], s.Reason, s.Lines)
		}
	}
}

// warnSecrets warns if the recordings hash values in different ways.
func (r *recordings) warnSecrets(errs io.Writer) {
	secrets := map[string]bool{} // "": the values are plain
	for _, note := range r.Notes() {
		secrets[note.Secret] = true
	}
	switch {
	case len(secrets) > 1 && secrets[""]:
		warn(errs, "some recordings have hashed values, and others plain ones, so a key may count as several: read them separately")
	case len(secrets) > 1:
		warn(errs, "the recordings have hashed values under different secrets, so a key may count as several: "+
			"read each recording by itself, or record with one RECORD_SECRET_FILE")
	}
}

// summary returns the first recording and the number of the others, with a verb.
func (r *recordings) summary() string {
	first := r.paths[0]
	if first == "-" {
		first = "standard input"
	}
	switch others := len(r.paths) - 1; others {
	case 0:
		return first + " has"
	case 1:
		return first + " and 1 other have"
	default:
		return fmt.Sprintf("%s and %d others have", first, others)
	}
}

// A progressBar is a line on a terminal. The zero value shows nothing.
type progressBar struct {
	to    io.Writer // nil without a terminal
	start time.Time
	last  time.Time
	model progress.Model
}

func newProgressBar(to io.Writer) progressBar {
	if !isTerminal(to) || os.Getenv("TERM") == "dumb" {
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
		remaining := time.Duration(float64(took) * float64(total-done) / float64(done))
		text += fmt.Sprintf("  %v left", remaining.Round(time.Second))
	}
	_, _ = lipgloss.Fprint(b.to, "\r"+text+strings.Repeat(" ", 12)+"\r")
}

// clear removes the bar.
func (b *progressBar) clear() {
	if b.to != nil {
		_, _ = io.WriteString(b.to, "\r\x1b[2K")
	}
}
