package memstore

import "math"

// A cursor is the progress of a sweep: its position, and the earliest expiry of the records already checked.
//
// Two invariants hold during a sweep:
//   - On the pages with lower numbers than the cursor's, every expiry is at least min(shard.soonest, cursor.soonest).
//   - On the cursor's page, in the rows with lower numbers than the cursor's, every expiry is at least min(page.soonest, inPage).
type cursor struct {
	sweeping bool // a sweep of the shard is in progress
	begun    bool // a sweep of the current page is in progress
	page     uint32
	row      uint16
	inPage   int64 // the earliest expiry that the sweep found before the row, on the page
	soonest  int64 // the earliest expiry that the sweep found on the pages before the page
}

// sweepPerTake is the number of records that a Take checks while its shard has expired ones. A Take adds one or two records, so the
// sweep keeps up if one in eight has expired.
const sweepPerTake = 8

// Sweep removes some expired records of each shard, as Takes do. Call it periodically if Takes may stop.
func (s *Store) Sweep() {
	for i := range s.shards {
		sh := &s.shards[i]
		if sh.live.Load() == 0 {
			continue
		}
		sh.mu.Lock()
		sh.latest = s.clock()
		for range stepsPerSweep {
			if s.sweepStep(sh, sh.latest); !sh.cursor.sweeping {
				break
			}
		}
		sh.mu.Unlock()
	}
}

// stepsPerSweep bounds the steps of Sweep in a shard, so that it holds the lock for about 10 µs.
const stepsPerSweep = 64

// sweepStep removes some expired records. It skips pages and shards that have none.
func (s *Store) sweepStep(sh *shard, storeNow int64) {
	c := &sh.cursor
	if !c.sweeping {
		if sh.soonest > storeNow {
			return
		}
		// No page has a lower number than 0, so the invariant holds. setExpiry and remove lower the shard's soonest.
		*c, sh.soonest = cursor{sweeping: true, soonest: math.MaxInt64}, math.MaxInt64
	}
	for range sweepPerTake {
		if int(c.page) >= len(sh.pages.table.items) {
			sh.soonest = min(sh.soonest, c.soonest)
			c.sweeping = false
			return
		}
		pg := &sh.pages.table.items[c.page]
		switch {
		case !c.begun && pg.soonest > storeNow:
			c.soonest = min(c.soonest, pg.soonest)
			c.page++
		case !c.begun:
			// No row has a lower number than 0, so the invariant holds. setExpiry lowers the page's soonest.
			c.begun, c.row, c.inPage, pg.soonest = true, 0, math.MaxInt64, math.MaxInt64
		case c.row >= pg.n:
			pg.soonest = min(pg.soonest, c.inPage)
			c.soonest = min(c.soonest, pg.soonest)
			c.page, c.begun = c.page+1, false
		default:
			if expiry := pg.record(int(c.row)).expiry(); expiry > storeNow {
				c.inPage = min(c.inPage, expiry)
				c.row++
			} else {
				s.remove(sh, positionOf(c.page, int(c.row)))
			}
		}
	}
}
