package limiters

import (
	"archive/zip"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

func mustZone(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := zoneOf(name)
	must.Succeed(t, err)
	return zone
}

// Each case has a time, and the start and the end of its window in UTC.
func TestCalendarWindowStartsAndEnds(t *testing.T) {
	for _, tt := range []struct {
		name, zone string
		unit       calendarUnit
		count      int64
		now        string
		start, end string
	}{
		{"a day of 24 hours", "Europe/Berlin", calendarDay, 1, "2025-07-01T12:00:00Z", "2025-06-30T22:00:00Z", "2025-07-01T22:00:00Z"},
		{"a day of 23 hours", "Europe/Berlin", calendarDay, 1, "2025-03-30T12:00:00Z", "2025-03-29T23:00:00Z", "2025-03-30T22:00:00Z"},
		{"a day of 25 hours", "Europe/Berlin", calendarDay, 1, "2025-10-26T12:00:00Z", "2025-10-25T22:00:00Z", "2025-10-26T23:00:00Z"},
		{"spring in New York", "America/New_York", calendarDay, 1, "2025-03-09T12:00:00Z", "2025-03-09T05:00:00Z", "2025-03-10T04:00:00Z"},
		{"autumn in New York", "America/New_York", calendarDay, 1, "2025-11-02T12:00:00Z", "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"},
		{"a change by half an hour, spring", "Australia/Lord_Howe", calendarDay, 1, "2025-10-05T00:00:00Z", "2025-10-04T13:30:00Z", "2025-10-05T13:00:00Z"},
		{"a change by half an hour, autumn", "Australia/Lord_Howe", calendarDay, 1, "2025-04-06T00:00:00Z", "2025-04-05T13:00:00Z", "2025-04-06T13:30:00Z"},
		{"no midnight in Havana", "America/Havana", calendarDay, 1, "2025-03-09T12:00:00Z", "2025-03-09T05:00:00Z", "2025-03-10T04:00:00Z"},
		{"the day before no midnight in Havana", "America/Havana", calendarDay, 1, "2025-03-09T04:59:59Z", "2025-03-08T05:00:00Z", "2025-03-09T05:00:00Z"},
		{"midnight twice in Havana", "America/Havana", calendarDay, 1, "2025-11-02T05:30:00Z", "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"},
		{"no midnight in Cairo", "Africa/Cairo", calendarDay, 1, "2025-04-25T12:00:00Z", "2025-04-24T22:00:00Z", "2025-04-25T21:00:00Z"},
		{"the hour before midnight twice in Cairo", "Africa/Cairo", calendarDay, 1, "2025-10-30T21:30:00Z", "2025-10-29T21:00:00Z", "2025-10-30T22:00:00Z"},
		{"the evening before comes again after midnight", "America/St_Johns", calendarDay, 1, "2010-11-07T02:40:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
		{"a day that did not exist", "Pacific/Apia", calendarDay, 1, "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"the day after it", "Pacific/Apia", calendarDay, 1, "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"a zone that has no summer time", "Asia/Kathmandu", calendarDay, 1, "2025-06-01T00:00:00Z", "2025-05-31T18:15:00Z", "2025-06-01T18:15:00Z"},

		{"days in threes, counted from 1970", "UTC", calendarDay, 3, "1970-01-03T23:59:59Z", "1970-01-01T00:00:00Z", "1970-01-04T00:00:00Z"},
		{"days in threes", "UTC", calendarDay, 3, "2025-11-21T00:00:00Z", "2025-11-20T00:00:00Z", "2025-11-23T00:00:00Z"},
		{"a week begins on Monday", "UTC", calendarWeek, 1, "2025-11-21T00:00:00Z", "2025-11-17T00:00:00Z", "2025-11-24T00:00:00Z"},
		{"a week ends on Sunday", "UTC", calendarWeek, 1, "2025-11-23T23:59:59Z", "2025-11-17T00:00:00Z", "2025-11-24T00:00:00Z"},
		{"weeks in twos, counted from 1969-12-29", "UTC", calendarWeek, 2, "1970-01-11T23:59:59Z", "1970-01-01T00:00:00Z", "1970-01-12T00:00:00Z"},
		{"a week with a change of the clock", "Europe/Berlin", calendarWeek, 1, "2025-03-28T00:00:00Z", "2025-03-23T23:00:00Z", "2025-03-30T22:00:00Z"},
		{"a week across a year", "Europe/Berlin", calendarWeek, 1, "2026-01-01T00:00:00Z", "2025-12-28T23:00:00Z", "2026-01-04T23:00:00Z"},
		{"a leap February", "UTC", calendarMonth, 1, "2024-02-29T23:59:59Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"a February", "UTC", calendarMonth, 1, "2025-02-28T23:59:59Z", "2025-02-01T00:00:00Z", "2025-03-01T00:00:00Z"},
		{"a century that is not a leap year", "UTC", calendarMonth, 1, "2100-02-28T23:59:59Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"},
		{"a month of summer time", "Europe/Berlin", calendarMonth, 1, "2025-03-31T21:59:59Z", "2025-02-28T23:00:00Z", "2025-03-31T22:00:00Z"},
		{"a quarter", "Europe/Berlin", calendarMonth, 3, "2025-11-21T00:00:00Z", "2025-09-30T22:00:00Z", "2025-12-31T23:00:00Z"},
		{"seven months", "UTC", calendarMonth, 7, "1970-08-01T00:00:00Z", "1970-08-01T00:00:00Z", "1971-03-01T00:00:00Z"},
		{"a leap year", "UTC", calendarYear, 1, "2024-12-31T23:59:59Z", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"},
		{"a year where it begins early", "Pacific/Kiritimati", calendarYear, 1, "2025-12-31T10:00:00Z", "2025-12-31T10:00:00Z", "2026-12-31T10:00:00Z"},
		{"four years", "UTC", calendarYear, 4, "2025-11-21T00:00:00Z", "2022-01-01T00:00:00Z", "2026-01-01T00:00:00Z"},
		{"local time before 1970", "America/New_York", calendarYear, 1, "1970-01-01T00:00:01Z", "1970-01-01T00:00:00Z", "1970-01-01T05:00:00Z"},
		{"a clock before 1970", "America/New_York", calendarYear, 1, "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T05:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, tt.now)
		must.Succeed(t, err)
		c := &calendar{zone: mustZone(t, tt.zone), unit: tt.unit, count: tt.count}
		w := c.windows(now.UnixMicro())
		format := func(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339) }
		if start, end := format(w.current), format(w.next); start != tt.start || end != tt.end {
			t.Errorf("%s: %s at %s: from %s to %s, want %s to %s", tt.name, tt.zone, tt.now, start, end, tt.start, tt.end)
		}
	}
}

// The windows of each zone follow each other without a gap, at most one of them is current, and
// each begins with its date.
func TestCalendarWindowsFollowEachOther(t *testing.T) {
	names := TimeZones()
	if testing.Short() {
		names = []string{"Europe/Berlin", "America/Havana", "Africa/Cairo", "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns"}
	}
	for _, name := range names {
		c := &calendar{zone: mustZone(t, name), unit: calendarDay, count: 1}
		for now := time.Date(2009, 12, 1, 0, 0, 0, 0, time.UTC).UnixMicro(); now < time.Date(2013, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(); {
			w := c.compute(now)
			if !slices.IsSorted([]int64{w.previous, w.current, w.next, w.afterNext}) || w.current > now || w.next <= now {
				t.Fatalf("%s: windows %v at %d", name, *w, now)
			}
			if last := c.compute(w.next - 1); *last != *w {
				t.Fatalf("%s: windows %v at %d, and %v at their end", name, *w, now, *last)
			}
			next := c.compute(w.next)
			if next.previous != w.current || next.current != w.next || next.next != w.afterNext {
				t.Fatalf("%s: windows %v follow %v", name, *next, *w)
			}
			at := time.UnixMicro(w.current).In(c.zone)
			if before := time.UnixMicro(w.current - 1).In(c.zone); before.YearDay() == at.YearDay() {
				t.Fatalf("%s: a window starts at %v, in the middle of a day", name, at)
			}
			now = w.next
		}
	}
}

func TestCalendarIsComputedOncePerWindow(t *testing.T) {
	c := &calendar{zone: mustZone(t, "Europe/Berlin"), unit: calendarDay, count: 1}
	now := time.Date(2025, 3, 30, 12, 0, 0, 0, time.UTC).UnixMicro()
	w := c.windows(now)
	if c.windows(w.current) != w || c.windows(w.next-1) != w || c.windows(now) != w {
		t.Error("times in one window computed it again")
	}
	if n := testing.AllocsPerRun(100, func() { c.windows(now) }); n > 0 {
		t.Errorf("%v allocations for a known window", n)
	}
	if end := c.end(w.current); end != w.next {
		t.Errorf("the window ends at %d, want %d", end, w.next)
	}
	if end := c.end(w.next); end != w.afterNext || c.windows(now) != w {
		t.Errorf("the next window ends at %d, want %d without a new computation", end, w.afterNext)
	}
	if next := c.windows(w.next); next == w || next.current != w.next {
		t.Errorf("the next window begins at %d, want %d", next.current, w.next)
	}
}

func TestCalendarIsSafeForConcurrentUse(t *testing.T) {
	c := &calendar{zone: mustZone(t, "Europe/Berlin"), unit: calendarDay, count: 1}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range int64(1000) {
				now := 1_763_683_200_000_000 + (i%3+int64(g))*secondsPerDay*1e6
				if w := c.windows(now); w.current > now || w.next <= now {
					t.Errorf("windows %v at %d", *w, now)
				}
			}
		})
	}
	all.Wait()
}

func TestTimeZonesMatchGo(t *testing.T) {
	if names := TimeZones(); !slices.IsSorted(names) || !slices.Contains(names, utc) {
		t.Error("zones.txt is not sorted, or lacks UTC")
	}
	for _, name := range TimeZones() {
		if _, err := zoneOf(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "Local", "europe/berlin", "right/Europe/Berlin", "Europe", "../UTC", "Europe/Berlin ", "Mars/Olympus"} {
		if zone, err := zoneOf(name); err == nil {
			t.Errorf("%q is the zone %v, want an error", name, zone)
		}
	}
	//nolint:staticcheck // the toolchain's folder is what the test is about
	archive, err := zip.OpenReader(filepath.Join(runtime.GOROOT(), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Skip("the toolchain has no time zone database: ", err)
	}
	defer func() { _ = archive.Close() }()
	var names []string
	for _, f := range archive.File {
		if !f.FileInfo().IsDir() {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, TimeZones()) {
		t.Errorf("zones.txt has %d names, and Go %d: write those of Go into it", len(TimeZones()), len(names))
	}
}

func BenchmarkCalendarAt(b *testing.B) {
	zone, _ := zoneOf("Europe/Berlin")
	c := &calendar{zone: zone, unit: calendarMonth, count: 1}
	now := time.Date(2025, 3, 30, 12, 0, 0, 0, time.UTC).UnixMicro()
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			c.windows(now)
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			c.compute(now)
		}
	})
}
