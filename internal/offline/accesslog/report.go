package accesslog

import (
	"slices"
	"time"
)

// A Reason explains why a line is unreadable.
type Reason string

// The reasons.
const (
	TooLong     Reason = "too_long"    // more than 256 KiB
	NotInFormat Reason = "not_format"  // the text does not follow the format
	Ambiguous   Reason = "ambiguous"   // quotes in a field make the fields ambiguous
	NotJSON     Reason = "not_json"    // not a JSON object
	BadCSV      Reason = "bad_csv"     // not as many fields as the header, or a quote without an end
	NoTime      Reason = "no_time"     // the field with the time is missing
	BadTime     Reason = "bad_time"    // the time is in an unknown format, or outside the years 1971 to 2199
	NoZone      Reason = "no_zone"     // the time has no zone, and no zone is set
	BadDuration Reason = "no_duration" // the duration is missing, or not a number
	BadHits     Reason = "bad_hits"    // the hits are not a whole number
	BadValue    Reason = "bad_value"   // the request has more text than a line of a recording
)

// maxListed bounds Report.First.
const maxListed = 20

// A Report counts the lines of a conversion.
type Report struct {
	Lines      int64            // without empty lines and headers
	Written    int64            // requests
	Unreadable int64            // lines
	Reasons    map[Reason]int64 // why lines are unreadable, with the number of lines
	First      []Unreadable     // the first unreadable lines, at most 20
	// NoDescriptors counts readable lines that yield no descriptor. They are not written.
	NoDescriptors int64
	LeftOut       []int64  // by index in Options.Descriptors: the requests that have other descriptors, but not this one
	Unknown       []string // fields of the mapping, and the status field of the options, that no line has
	Broken        []error  // files that could not be read to their end
	// Hints are the files that yield no request, but seem to be in another format.
	Hints    []string
	From, To time.Time
}

// An Unreadable is a line that could not be read.
type Unreadable struct {
	File   string
	Line   int64 // from 1
	Reason Reason
}

func (r *Report) addUnreadable(file string, line int64, reason Reason) {
	r.Unreadable++
	r.Reasons[reason]++
	if len(r.First) < maxListed {
		r.First = append(r.First, Unreadable{file, line, reason})
	}
}

// addWritten counts a request that is in the recording.
func (r *Report) addWritten(at time.Time) {
	r.Written++
	if r.Written == 1 || at.Before(r.From) {
		r.From = at
	}
	if at.After(r.To) {
		r.To = at
	}
}

// Report returns the counts so far.
func (c *Converter) Report() Report {
	r := c.report
	for name, lines := range c.fields {
		if *lines == 0 && r.Lines > r.Unreadable {
			r.Unknown = append(r.Unknown, name)
		}
	}
	slices.Sort(r.Unknown)
	return r
}
