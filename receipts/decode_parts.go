package receipts

import "github.com/fusebox-dev/fusebox/taxonomy"

func (d *decoder) nested(r *Receipt, key []byte) bool {
	switch string(key) {
	case "boot":
		r.Boot = d.boot()
	case "budget":
		r.Budget = d.counts()
	case "circuits":
		r.Circuits = d.circuits()
	case "excluded_by":
		r.Window.ExcludedBy = d.counts()
	case "fallback_loss":
		r.FallbackLoss = d.strings()
	case "feeds":
		r.Feeds = d.feeds()
	case "flags":
		r.Flags = d.strings()
	case "gap":
		r.Gap = d.gap()
	case "key":
		r.Key = d.keyNote()
	case "limits":
		r.Limits = d.counts()
	case "nd":
		r.ND = d.nd()
	case "override":
		r.Override = d.override()
	case "retention":
		r.Retention = d.retention()
	case "rollout_step":
		r.Step = d.step()
	case "rollup":
		r.Rollup = d.rollup()
	case "rules":
		r.Rules = d.strings()
	case "scope_path":
		r.ScopePath = d.strings()
	case "truncated":
		r.Truncated = d.strings()
	default:
		return false
	}
	return true
}

// object calls field for every key; a field that is not known there is passed
// over, because a newer writer may add one.
func (d *decoder) object(field func(key string) bool) {
	var last []byte
	for more := d.begin('{', '}'); more; more = d.next('}') {
		if key := d.key(&last); d.err == nil && !field(string(key)) {
			d.skip(1)
		}
	}
}

func (d *decoder) strings() (list []string) {
	for more := d.begin('[', ']'); more; more = d.next(']') {
		list = append(list, d.text())
	}
	return list
}

func (d *decoder) counts() (list []Count) {
	d.object(func(key string) bool {
		list = append(list, Count{Name: key, N: d.int()})
		return true
	})
	return list
}

func (d *decoder) circuits() (list []Circuit) {
	for more := d.begin('[', ']'); more; more = d.next(']') {
		var c Circuit
		d.object(func(key string) bool {
			switch key {
			case "breaker":
				c.Breaker = d.text()
			case "layer":
				d.enum(&c.Layer)
			case "scope":
				c.Scope = d.text()
			case "state":
				d.enum(&c.State)
			case "version":
				c.Version = d.int()
			default:
				return false
			}
			return true
		})
		list = append(list, c)
	}
	return list
}

func (d *decoder) feeds() (list []Feed) {
	for more := d.begin('[', ']'); more; more = d.next(']') {
		var f Feed
		d.object(func(key string) bool {
			switch key {
			case "breaker":
				f.Breaker = d.text()
			case "layer":
				d.enum(&f.Layer)
			case "level":
				f.Level = d.text()
			case "reason":
				f.Reason = d.text()
			case "scope":
				f.Scope = d.text()
			case "signal":
				d.enum(&f.Signal)
			default:
				return false
			}
			return true
		})
		list = append(list, f)
	}
	return list
}

func (d *decoder) boot() *BootNote {
	n := new(BootNote)
	d.object(func(key string) bool {
		switch key {
		case "cut_bytes":
			n.CutBytes = d.int()
		case "epoch":
			n.Epoch = d.int()
		case "incarnation":
			n.Incarnation = d.text()
		case "recovered":
			n.Recovered = d.int()
		case "unclean":
			n.Unclean = d.bool()
		default:
			return false
		}
		return true
	})
	return n
}

func (d *decoder) gap() *GapNote {
	n := new(GapNote)
	d.object(func(key string) bool {
		switch key {
		case "cause":
			n.Cause = d.text()
		case "class":
			d.enum(&n.Class)
		case "count":
			n.Count = d.int()
		case "from_seq":
			n.FromSeq = d.int()
		case "to_seq":
			n.ToSeq = d.int()
		default:
			return false
		}
		return true
	})
	return n
}

func (d *decoder) keyNote() *KeyNote {
	n := new(KeyNote)
	d.object(func(key string) bool {
		switch key {
		case "epoch":
			n.Epoch = d.int()
		case "vkey":
			n.VKey = d.text()
		default:
			return false
		}
		return true
	})
	return n
}

func (d *decoder) nd() *Nondeterminism {
	n := new(Nondeterminism)
	d.object(func(key string) bool {
		switch key {
		case "now_us":
			n.NowUS = d.int()
		case "seed":
			n.Seed = d.int()
		case "transcript":
			n.Transcript = d.text()
		default:
			return false
		}
		return true
	})
	return n
}

func (d *decoder) override() *OverrideNote {
	n := new(OverrideNote)
	d.object(func(key string) bool {
		switch key {
		case "by":
			n.By = d.text()
		case "expires_us":
			n.ExpiresUS = d.int()
		case "reason":
			n.Reason = d.text()
		case "ticket":
			n.Ticket = d.text()
		default:
			return false
		}
		return true
	})
	return n
}

func (d *decoder) retention() *RetentionNote {
	n := new(RetentionNote)
	d.object(func(key string) bool {
		switch key {
		case "before_us":
			n.BeforeUS = d.int()
		case "classes":
			for more := d.begin('[', ']'); more; more = d.next(']') {
				var c Delivery
				d.enum(&c)
				n.Classes = append(n.Classes, c)
			}
		case "count":
			n.Count = d.int()
		case "from_index":
			n.FromIndex = d.int()
		case "to_index":
			n.ToIndex = d.int()
		default:
			return false
		}
		return true
	})
	return n
}

func (d *decoder) step() *RolloutStep {
	n := new(RolloutStep)
	d.object(func(key string) bool {
		switch key {
		case "basis_points":
			n.BasisPoints = d.int()
		case "candidate":
			n.Candidate = taxonomy.PolicyVersion(d.text())
		case "figures":
			n.Figures = d.counts()
		case "from":
			n.From = d.text()
		case "to":
			n.To = d.text()
		default:
			return false
		}
		return true
	})
	return n
}

func (d *decoder) rollup() *RollupNote {
	n := new(RollupNote)
	d.object(func(key string) bool {
		switch key {
		case "from_us":
			n.FromUS = d.int()
		case "rows":
			for more := d.begin('[', ']'); more; more = d.next(']') {
				n.Rows = append(n.Rows, d.rollupRow())
			}
		case "to_us":
			n.ToUS = d.int()
		case "total":
			n.Total = d.int()
		default:
			return false
		}
		return true
	})
	return n
}

func (d *decoder) rollupRow() (r RollupRow) {
	d.object(func(key string) bool {
		switch key {
		case "breaker":
			r.Breaker = d.text()
		case "decision":
			d.enum(&r.Decision)
		case "n":
			r.N = d.int()
		case "outcome":
			opt(d, &r.Outcome, &r.Outcome.V)
		case "scope":
			r.Scope = d.text()
		default:
			return false
		}
		return true
	})
	return r
}
