package receipts

import "slices"

// The nested values of a receipt, each with its keys in order.

// open begins a nested value; close ends it. Inside, cut fields are reported
// under the name of the outer one.
func (e *encoder) open(key string) int {
	e.b = append(e.b, key...)
	e.in = key[2 : len(key)-2]
	return len(e.b)
}

// close takes a list in which nothing was written away again: absent fields are
// not written.
func (e *encoder) close(start int, left, right byte) {
	if left == '[' && len(e.b) == start {
		e.b = e.b[:start-len(e.in)-len(`,"":`)]
		e.in = ""
		return
	}
	e.in = ""
	e.end(start, left, right)
}

func (e *encoder) end(start int, left, right byte) {
	if len(e.b) == start {
		e.b = append(e.b, left)
	} else {
		e.b[start] = left // instead of the first comma
	}
	e.b = append(e.b, right)
}

// strings writes at most most entries.
func (e *encoder) strings(key string, list []string, most, limit int) {
	if len(list) == 0 {
		return
	}
	start := e.open(key)
	if len(list) > most {
		e.mark(key)
		list = list[:most]
	}
	for _, s := range list {
		e.text(`,"`, s, limit)
	}
	e.close(start, '[', ']')
}

func (e *encoder) path(list []string) { e.strings(`,"scope_path":`, list, capPath, capScope) }

func (e *encoder) codes(key string, list []string, most int) {
	if len(list) == 0 {
		return
	}
	start := e.open(key)
	if len(list) > most {
		e.mark(key)
		list = list[:most]
	}
	for _, s := range list {
		e.code(`,"`, s)
	}
	e.close(start, '[', ']')
}

// flags writes the flags, and adds "vocabulary" where a code was not one.
func (e *encoder) flags(r *Receipt) {
	if len(r.Flags) == 0 && !e.bad {
		return
	}
	list := r.Flags
	if e.bad && !slices.Contains(list, flagVocabulary) {
		list = append(slices.Clone(list), flagVocabulary)
	}
	e.codes(`,"flags":`, list, capCounts)
}

const flagVocabulary = "vocabulary"

func (r *Receipt) codesFine() bool {
	ok := isCode(r.Reason) && isCode(r.ErrorCode) && isCode(r.EvalError) && isCode(r.StoreRule) && isCode(r.Module.Error) &&
		allCodes(r.Rules) && allCodes(r.FallbackLoss) && allCodes(r.Flags)
	for i := range r.Feeds {
		ok = ok && isCode(r.Feeds[i].Reason) && isCode(r.Feeds[i].Level)
	}
	if r.Override != nil {
		ok = ok && isCode(r.Override.Reason)
	}
	if r.Step != nil {
		ok = ok && isCode(r.Step.From) && isCode(r.Step.To) && countsFine(r.Step.Figures)
	}
	if r.Gap != nil {
		ok = ok && isCode(r.Gap.Cause)
	}
	return ok && countsFine(r.Limits) && countsFine(r.Budget) && countsFine(r.Window.ExcludedBy)
}

func allCodes(list []string) bool {
	for _, s := range list {
		if !isCode(s) {
			return false
		}
	}
	return true
}

func countsFine(list []Count) bool {
	for i := range list {
		if !isCode(list[i].Name) {
			return false
		}
	}
	return true
}

// counts writes an object of numbers, sorted by name. A name that is not a code
// is left out, and of two equal names the first counts.
func (e *encoder) counts(key string, list []Count) {
	if len(list) == 0 {
		return
	}
	var order [capCounts]uint8
	sorted := order[:0]
	for i := range list {
		if len(sorted) == capCounts {
			e.mark(key)
			break
		}
		name := list[i].Name
		if name == "" || e.bad && !isCode(name) {
			continue
		}
		at, dup := slices.BinarySearchFunc(sorted, name, func(j uint8, n string) int { return compare(list[j].Name, n) })
		if !dup {
			sorted = slices.Insert(sorted, at, uint8(i))
		}
	}
	if len(sorted) == 0 {
		return
	}
	start := e.open(key)
	for _, i := range sorted {
		e.b = append(e.b, ',', '"')
		e.b = append(e.b, list[i].Name...)
		e.b = append(e.b, '"')
		e.must(`:`, list[i].N)
	}
	e.close(start, '{', '}')
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (e *encoder) circuits(list []Circuit) {
	if len(list) == 0 {
		return
	}
	start := e.open(`,"circuits":`)
	if len(list) > capList {
		e.mark("")
		list = list[:capList]
	}
	for i := range list {
		c := &list[i]
		e.b = append(e.b, ',')
		at := len(e.b)
		e.text(`,"breaker":"`, c.Breaker, capID)
		e.word(`,"layer":"`, c.Layer.String())
		e.text(`,"scope":"`, c.Scope, capScope)
		e.word(`,"state":"`, c.State.String())
		e.num(`,"version":`, c.Version)
		e.end(at, '{', '}')
	}
	e.close(start, '[', ']')
}

func (e *encoder) feeds(list []Feed) {
	if len(list) == 0 {
		return
	}
	start := e.open(`,"feeds":`)
	if len(list) > capList {
		e.mark("")
		list = list[:capList]
	}
	for i := range list {
		f := &list[i]
		e.b = append(e.b, ',')
		at := len(e.b)
		e.text(`,"breaker":"`, f.Breaker, capID)
		e.word(`,"layer":"`, f.Layer.String())
		e.code(`,"level":"`, f.Level)
		e.code(`,"reason":"`, f.Reason)
		e.text(`,"scope":"`, f.Scope, capScope)
		e.word(`,"signal":"`, f.Signal.String())
		e.end(at, '{', '}')
	}
	e.close(start, '[', ']')
}

func (e *encoder) boot(n *BootNote) {
	start := e.open(`,"boot":`)
	e.num(`,"cut_bytes":`, n.CutBytes)
	e.must(`,"epoch":`, n.Epoch)
	e.text(`,"incarnation":"`, n.Incarnation, capID)
	e.must(`,"recovered":`, n.Recovered)
	e.bool(`,"unclean":`, n.Unclean)
	e.close(start, '{', '}')
}

func (e *encoder) gap(n *GapNote) {
	start := e.open(`,"gap":`)
	e.code(`,"cause":"`, n.Cause)
	e.word(`,"class":"`, n.Class.String())
	e.must(`,"count":`, n.Count)
	e.must(`,"from_seq":`, n.FromSeq)
	e.must(`,"to_seq":`, n.ToSeq)
	e.close(start, '{', '}')
}

func (e *encoder) key(n *KeyNote) {
	start := e.open(`,"key":`)
	e.must(`,"epoch":`, n.Epoch)
	e.text(`,"vkey":"`, n.VKey, 2*capScope)
	e.close(start, '{', '}')
}

func (e *encoder) nd(n *Nondeterminism) {
	start := e.open(`,"nd":`)
	e.num(`,"now_us":`, n.NowUS)
	e.num(`,"seed":`, n.Seed)
	e.text(`,"transcript":"`, n.Transcript, capID)
	e.close(start, '{', '}')
}

func (e *encoder) override(n *OverrideNote) {
	start := e.open(`,"override":`)
	e.text(`,"by":"`, n.By, capID)
	e.num(`,"expires_us":`, n.ExpiresUS)
	e.code(`,"reason":"`, n.Reason)
	e.text(`,"ticket":"`, n.Ticket, capID)
	e.close(start, '{', '}')
}

func (e *encoder) retention(n *RetentionNote) {
	start := e.open(`,"retention":`)
	e.must(`,"before_us":`, n.BeforeUS)
	e.b = append(e.b, `,"classes":`...)
	list := len(e.b)
	for _, c := range n.Classes {
		e.word(`,"`, c.String())
	}
	e.end(list, '[', ']')
	e.must(`,"count":`, n.Count)
	e.must(`,"from_index":`, n.FromIndex)
	e.must(`,"to_index":`, n.ToIndex)
	e.close(start, '{', '}')
}

func (e *encoder) step(n *RolloutStep) {
	start := e.open(`,"rollout_step":`)
	e.num(`,"basis_points":`, n.BasisPoints)
	e.text(`,"candidate":"`, string(n.Candidate), capScope)
	e.counts(`,"figures":`, n.Figures)
	e.code(`,"from":"`, n.From)
	e.code(`,"to":"`, n.To)
	e.close(start, '{', '}')
}

func (e *encoder) rollup(n *RollupNote) {
	start := e.open(`,"rollup":`)
	e.must(`,"from_us":`, n.FromUS)
	if rows := n.Rows; len(rows) > 0 {
		if len(rows) > capRollup {
			e.mark("")
			rows = rows[:capRollup]
		}
		e.b = append(e.b, `,"rows":`...)
		list := len(e.b)
		for i := range rows {
			e.rollupRow(&rows[i])
		}
		e.end(list, '[', ']')
	}
	e.must(`,"to_us":`, n.ToUS)
	e.must(`,"total":`, n.Total)
	e.close(start, '{', '}')
}

func (e *encoder) rollupRow(r *RollupRow) {
	e.b = append(e.b, ',')
	at := len(e.b)
	e.text(`,"breaker":"`, r.Breaker, capID)
	e.word(`,"decision":"`, r.Decision.String())
	e.must(`,"n":`, r.N)
	if r.Outcome.OK {
		e.word(`,"outcome":"`, r.Outcome.V.String())
	}
	e.text(`,"scope":"`, r.Scope, capScope)
	e.end(at, '{', '}')
}
