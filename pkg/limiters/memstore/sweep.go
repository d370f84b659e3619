package memstore

// A cursor is the record that the sweep of a shard checks next.
type cursor struct {
	page uint32
	row  uint16
}

// sweepPerTake is the number of records that a Take checks while its shard has expired ones. A Take
// adds one or two records, so the sweep keeps up if one in eight has expired.
const sweepPerTake = 8

// Sweep removes some expired records of each shard, as Takes do. Call it periodically if Takes may
// stop.
func (s *Store) Sweep() {
	for i := range s.shards {
		sh := &s.shards[i]
		if sh.live.Load() == 0 {
			continue
		}
		sh.mu.Lock()
		sh.latest = s.clock()
		for range stepsPerSweep {
			if sh.expiryBound > sh.latest {
				break
			}
			s.sweepStep(sh, sh.latest)
		}
		sh.mu.Unlock()
	}
}

// stepsPerSweep bounds the steps of Sweep in a shard, so that it holds the lock for about 10 µs.
const stepsPerSweep = 64

// sweepStep removes some expired records. It skips shards and pages without expired records. With
// 1,000,000 keys, skipping shards saves 20 % of a Take, and skipping pages another 10 % while keys
// expire one at a time.
func (s *Store) sweepStep(sh *shard, storeNow int64) {
	if sh.expiryBound > storeNow {
		return
	}
	c := &sh.cursor
	for range sweepPerTake {
		if int(c.page) >= len(sh.pages.table.items) {
			*c, sh.expiryBound = cursor{}, sh.pages.expiryBound()
			return
		}
		pg := &sh.pages.table.items[c.page]
		switch {
		case c.row == 0 && pg.expiryBound > storeNow:
			c.page++
		case c.row >= pg.n:
			pg.expiryBound = pg.earliest()
			*c = cursor{page: c.page + 1}
		case pg.record(int(c.row)).expiry() > storeNow:
			c.row++
		default:
			s.removeRecord(sh, positionOf(c.page, int(c.row)))
		}
	}
}
