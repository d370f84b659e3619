// Package report writes the result of a simulation as an HTML page with SVG pictures, in one file
// without references to others.
package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-rls/weir/internal/offline/simulate"
	"github.com/weir-rls/weir/internal/terminal"
)

// Bounds of a page. The JSON of a simulation has all rows.
const (
	maxRows    = 200 // limits in the table
	maxDetails = 40  // limits with a section of their own
)

//go:embed report.html
var page string

//go:embed report.css
var style string

//go:embed report.js
var script string

// pageTemplate is parsed at its first use, because a server has none.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("report").Funcs(functions).Parse(page))
})

// A report is the data of the page.
type report struct {
	*simulate.Result
	Style   template.CSS
	Script  template.JS
	Hash    string // the hash of Script, for the Content-Security-Policy of the page
	Overall *chart
	Rows    []*section // a row for each limit in the table
	More    int64      // the number of limits without a row
	Details []*section // limits with a section of their own
}

// A section is a limit on the page.
type section struct {
	*simulate.LimitResult
	ID    int
	Chart *chart // nil in a section without details, as the other pictures
	Histo []bar
	Top   []keyRow
	Burst *burst
}

// Title returns what the limit admits, such as 1,000 per day, fixed_window.
func (s *section) Title() string {
	if rest, found := strings.CutPrefix(s.Text, strconv.FormatInt(s.RequestsPerUnit, 10)+" "); found {
		return terminal.Grouped(s.RequestsPerUnit) + "\u00a0" + key(rest)
	}
	return key(s.Text)
}

// File returns the file and line of the rule without the folder.
func (s *section) File() string { return s.Source[strings.LastIndexByte(s.Source, '/')+1:] }

// Label returns the name of the limit, or "" if the limit has only a number.
func (s *section) Label() string {
	if _, err := strconv.Atoi(s.Name); err == nil {
		return ""
	}
	return s.Name
}

// Write writes the page of a result. Keys of clients appear as text, and characters that are not
// printable are escaped.
func Write(w io.Writer, result *simulate.Result) error {
	sum := sha256.Sum256([]byte(script))
	r := report{
		Result: result, Style: template.CSS(style), Script: template.JS(script),
		Hash:    "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
		Overall: newChart(&result.Timeline, result.Timeline.Allowed, result.Timeline.Denied),
	}
	r.addLimits()
	var b bytes.Buffer // so that a failure writes no half page
	if err := pageTemplate().Execute(&b, &r); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// addLimits adds the rows and the sections, the limits with the most denied requests first.
func (r *report) addLimits() {
	for i, l := range r.WorstFirst() {
		if i == maxRows {
			r.More = int64(len(r.Limits) - maxRows)
			return
		}
		s := &section{LimitResult: l, ID: i + 1}
		if i < maxDetails && l.Requests > 0 {
			s.Chart = newChart(&r.Timeline, l.AllowedOverTime, l.DeniedOverTime)
			s.Top = keyRows(l.TopKeys, r.From, r.To)
			if l.Usage != nil {
				s.Histo = histogram(l.Usage.Histogram)
			}
			s.Burst = newBurst(l)
			r.Details = append(r.Details, s)
		}
		r.Rows = append(r.Rows, s)
	}
}

// Length returns the time from the first to the last request.
func (r *report) Length() time.Duration { return r.To.Sub(r.From) }
