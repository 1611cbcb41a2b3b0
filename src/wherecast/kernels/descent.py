"""Matching by descent: a shallow tree of table lookups, event by event.

Theory of operation
-------------------
The naive matcher looks at every clause. The tree looks at few of them:

- A *node* is a list of tests. A *test* takes the event's code in one column, drops its low `shift` bits and looks the
  rest up in a table: direct where the keys are dense, open-addressed hash where they are not. The table names a
  child. A clause is filed under one test of a node, in the few cells that its interval meets, so an event with one
  code per column meets it at most once. Clauses that no test serves are in the node's *rest* leaves.
- The clauses of a leaf are looked at 64 at a time (`kernels.leaves`). Those that neither bitmaps nor guards decide are checked against their boxes (`kernels.rows`). What an event looks at is all over
  the memory, so events go in blocks of 16: their leaves are asked for together, and so are all boxes that are to be checked.

A column is an attribute, except that the second and further constraints of a clause on one array attribute have
columns of their own. A negative code names a list of codes (sorted, distinct); a constraint then holds if any does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Words
from wherecast.kernels.guards import SINGLE, Buckets, find_pairs, list_guarded, load_buckets, load_present
from wherecast.kernels.jit import (
    Scalar,
    copy_8,
    hot,
    inlined,
    jit,
    popcount,
    prefetch,
)
from wherecast.kernels.leaves import (
    CHECKED,
    LEAF_FIELDS,
    MAP,
    PAIRED,
    SIZE,
    SLOT,
    SURE,
    UNASKED,
    WORDS,
    fetch_guards,
    fetch_places,
    fetch_rows,
    fetch_slots,
    find_bits,
    is_needless,
    search_leaf,
)
from wherecast.kernels.present import list_present
from wherecast.kernels.rows import Points, Rows, box_holds

#: Events that are matched at the same time; boxes that are brought into the cache at the same time, and matches that are kept until these
#: are checked, both but for those of one leaf.
BLOCK, WAITING, KEPT = 16, 192, 4096
#: Boxes that are asked for together.
FETCHED = 64
#: Steps in which what a block reads is brought into the cache, each a block ahead of the next.
FETCH_STEPS = 3
#: Fewer distinct rows than this are in the second-level cache, and asking for them costs more than it gains.
FAR_ROWS = 1 << 17
#: A root with more tests than this is not looked ahead at. Trees of fewer bytes are in the cache: nothing of them is asked for ahead, as that would take a fifth of the time.
FEW_TESTS, FAR_TREE = 4, 1 << 20
#: Added to the shift of a test: no clause filed under it takes NULL; and, from this bit on, how many tests behind it are of the same
#: column and take none either. An event without a value passes over all of them at once: most of 200 optional columns have none.
NO_NULL, PASSED_AT = 64, 8
#: Children of a node beyond which the leaves among them are brought into the cache at the same time.
MANY_CHILDREN = 8


#: Of a tree of which the root asks each of its tests.
_ALL_TESTS = np.zeros(0, np.int32)


class LookupTree(NamedTuple):
    """The whole index as flat arrays; what is stored and mapped, but for `starts`."""

    nodes: Ints  # (nodes, 4) first test, end of tests, first rest leaf, end of rest leaves; node 0 is the root
    tests: Ints  # (tests, 5) column, shift (see NO_NULL), lowest key, size (negative: hash of -size entries), place in `table`
    table: Ints  # 0 nothing, k > 0 leaf k - 1, k < 0 node -k; a hash holds pairs (key, child)
    leaves: Longs  # (leaves, 8) first slot, slots, words (0: row leaf), first column, end of columns, place in `maps`,
    # whether something is left to check | column in which all clauses need a value + 1 (0: none) << 1, where sure rows are
    columns: Longs  # (leaf columns,) packed, see SHIFT_AT
    maps: Words  # rows of `words` words
    slots: Ints  # (slots + SLOT_PADDING,) clause of each slot; the end is padding for reads of whole words
    guards: Ints  # packed, see `kernels.guards`; those of a leaf follow each other
    near: Ints  # (columns,) low bits of a code that the buckets of guards leave out
    bucket_ptr: Longs  # (columns + 1,) where the table of a column begins in `buckets`
    buckets: Buckets  # of codes, see `kernels.guards`
    starts: Ints = _ALL_TESTS  # (columns,) first test of the root on each column + 1, 0: none; empty: all are asked


#: What a file has of a tree.
STORED_FIELDS = LookupTree._fields[:-1]


class Projected(NamedTuple):
    """Prepared events: one code per column, or ~r for the list `list_codes[list_ptr[r]:list_ptr[r + 1]]`."""

    codes: Ints  # (events, columns)
    list_ptr: Longs
    list_codes: Ints  # ascending and distinct within a list


class Scratch(NamedTuple):
    """Memory that one call of a kernel works in."""

    stack: Ints  # children still to visit
    places: Longs  # (2 * columns + PLACES_PADDING,) rows to AND
    found: Words  # (2 * LEAF_WORDS + 3,) candidates and those that need no check; the end is padding for reads of four words
    waiting: Ints  # (slots of the largest leaf + WAITING + UNASKED,) clauses whose boxes are to be checked
    kept: Ints  # (slots of the largest leaf + KEPT,) clauses that hold, of the events of a block
    ends: Longs  # (BLOCK, 2) where those of an event end in `kept` and in `waiting`
    own: Ints  # (columns,) the event's buckets
    met: Words  # (4 * columns,) bits of the 256 buckets that the event's list in a column meets
    numbers: Ints  # (columns + PADDING,) 0, 1, 2, ...
    there: Ints  # (columns + PADDING,) columns in which the event has a value


@inlined
def hash_key(key: Scalar) -> Scalar:
    """Spread neighbouring keys: Knuth's multiplicative hash."""
    return ((np.int64(key) * 2654435769) & 0xFFFFFFFF) >> 7


@inlined
def find_child(tests: Ints, table: Ints, test: Scalar, code: Scalar) -> Scalar:
    """Child for a code: 0 if none."""
    row = np.uint64(test)
    shift = tests[row, np.uint64(1)]
    if shift >= NO_NULL and code == 0:
        return np.int64(0)
    key = code >> (shift & 31)
    size = np.int64(tests[row, np.uint64(3)])
    start = np.int64(tests[row, np.uint64(4)])
    if size > 0:
        at = np.uint64(key - tests[row, np.uint64(2)])
        return np.int64(table[np.uint64(start) + at]) if at < np.uint64(size) else np.int64(0)
    mask = -size - 1
    at = hash_key(key) & mask
    while table[start + 2 * at + 1] != 0:
        if table[start + 2 * at] == key:
            return np.int64(table[start + 2 * at + 1])
        at = (at + 1) & mask
    return np.int64(0)


@inlined
def push_list(tests: Ints, table: Ints, list_ptr: Longs, list_codes: Ints, test: Scalar, code: Scalar, stack: Ints,
              top: Scalar) -> Scalar:  # fmt: skip
    """Push the children that a list of codes meets; the list is sorted, so equal keys follow each other.

    The places of all codes in the table are asked for before the first is looked at.
    """
    last = np.int64(-1)
    shift, size, start = tests[test, 1] & 31, np.int64(tests[test, 3]), np.int64(tests[test, 4])
    for k in range(list_ptr[~code], list_ptr[~code + 1]):
        key = np.int64(list_codes[k]) >> shift
        prefetch(table, start + (key - tests[test, 2] if size > 0 else 2 * (hash_key(key) & (-size - 1))))
    for k in range(list_ptr[~code], list_ptr[~code + 1]):
        element = np.int64(list_codes[k])
        key = element >> shift
        child = find_child(tests, table, test, element)
        if child != 0 and key != last:
            stack[top] = child
            top += 1
            last = key
    return top


@inlined
def push_children(nodes: Ints, tests: Ints, table: Ints, leaves: Longs, codes: Ints, list_ptr: Longs, list_codes: Ints, event: Scalar,
                  node: Scalar, stack: Ints, top: Scalar) -> Scalar:  # fmt: skip
    """Push the rest leaves of a node and the children that the event meets; return the new top.

    The leaves among them are brought into the cache, all at the same time, while none is needed yet.
    """
    begin = top
    for leaf in range(nodes[node, 2], nodes[node, 3]):
        stack[top] = leaf + 1
        top += 1
    test = np.int64(nodes[node, 0])
    end = np.int64(nodes[node, 1])
    while test < end:
        row = np.uint64(test)
        code = np.int64(codes[np.uint64(event), np.uint64(tests[row, np.uint64(0)])])
        shift = tests[row, np.uint64(1)]
        if code == 0 and shift >= NO_NULL:
            test += shift >> PASSED_AT
        elif code < 0:
            top = push_list(tests, table, list_ptr, list_codes, test, code, stack, top)
        else:
            child = find_child(tests, table, test, code)
            stack[np.uint64(top)] = child
            top += child != 0
        test += 1
    for at in range(begin, top):
        prefetch(leaves, LEAF_FIELDS * (np.int64(stack[at]) - 1))
    return top


@inlined
def push_present(nodes: Ints, tests: Ints, table: Ints, leaves: Longs, codes: Ints, list_ptr: Longs, list_codes: Ints, event: Scalar,
                 starts: Ints, there: Ints, n_there: Scalar, stack: Ints, top: Scalar) -> Scalar:  # fmt: skip
    """`push_children` of the root, of which no test takes NULL, by the columns there[:n_there] in which the event has a value."""
    begin = top
    for leaf in range(nodes[0, 2], nodes[0, 3]):
        stack[top] = leaf + 1
        top += 1
    end = np.int64(nodes[0, 1])
    for i in range(n_there):
        column = np.int64(there[i])
        test = np.int64(starts[column]) - 1
        code = np.int64(codes[event, column])
        while test >= 0:
            if code < 0:
                top = push_list(tests, table, list_ptr, list_codes, test, code, stack, top)
            else:
                child = find_child(tests, table, test, code)
                stack[top] = child
                top += child != 0
            test += 1
            if test == end or tests[test, 0] != column:
                break
    for at in range(begin, top):
        prefetch(leaves, LEAF_FIELDS * (np.int64(stack[at]) - 1))
    return top


@inlined
def fetch_ahead(nodes: Ints, tests: Ints, table: Ints, leaves: Longs, columns: Longs, maps: Words, slots: Ints, guards: Ints, codes: Ints,
                step: Scalar, block: Scalar) -> None:  # fmt: skip
    """Bring into the cache what the events of a block will read below the root, step by step: each reads what the one before it has brought.

    The leaves; what these begin with; rows of bits.
    """
    for event in range(block, min(block + BLOCK, codes.shape[0])):
        for test in range(nodes[0, 0], nodes[0, 1]):
            code = np.int64(codes[event, tests[test, 0]])
            child = find_child(tests, table, test, code) if code >= 0 else np.int64(0)
            if child > 0 and step == 0:
                prefetch(leaves, LEAF_FIELDS * (child - 1))
            elif child > 0 and step == 1:
                fetch_places(leaves, columns, guards, child)
                prefetch(slots, leaves[child - 1, SLOT])
            elif child > 0:
                fetch_rows(leaves, columns, maps, codes, event, child)


@inlined
def is_full(held: Scalar, kept: Ints, count: Scalar, waiting: Ints, size: Scalar) -> Scalar:
    """Whether a leaf of this size may find more than there is room for, or enough boxes wait."""
    return held + size + 64 > kept.size or count > WAITING or count + size + UNASKED > waiting.size


@inlined
def move_down(ids: Ints, first: Scalar, end: Scalar) -> Scalar:
    """Move ids[first:end] to the beginning; their number."""
    for i in range(first, end):
        ids[i - first] = ids[i]
    return end - first


@inlined
def fetch_boxes(row_ptr: Ints, number: npt.NDArray[Any], attr: npt.NDArray[Any], lo: Ints, hi: Ints, waiting: Ints,
                first: Scalar, end: Scalar) -> None:  # fmt: skip
    """Bring the boxes of the waiting clauses first:end into the cache."""
    for i in range(first, end):
        row = np.int64(row_ptr[np.uint64(np.uint32(waiting[np.uint64(i)]))])
        if number.size > 0:
            prefetch(number, row)
        else:
            prefetch(attr, row)
            prefetch(lo, row)
            prefetch(hi, row)
    if number.size > 0 and lo.size > FAR_ROWS:
        for i in range(first, end):
            row = np.int64(row_ptr[waiting[i]])
            for at in range(row, min(row + 4, np.int64(row_ptr[waiting[i] + 1]))):
                place = np.int64(number[at])
                prefetch(attr, place)
                prefetch(lo, place)
                prefetch(hi, place)


@hot
def settle(
    row_ptr: Ints, number: npt.NDArray[Any], attr: npt.NDArray[Any], lo: Ints, hi: Ints, codes: Ints, list_ptr: Longs,
    list_codes: Ints, first: Scalar, done: Scalar, end: Scalar, waiting: Ints, kept: Ints, ends: Longs, fetched: Scalar, out: Ints,
    n: Scalar, begin: Scalar, ptr: Longs,
) -> Scalar:  # fmt: skip
    """Write the clauses that hold for the events done:end of the block that begins at `first`; the new end, -1 if `out` is too small.

    The parts of a box are in four places of memory. Those of several boxes are asked for before the first is looked at: one by one, a
    check took 300 ns on `wide`, nearly all of it waiting. More than fit the first-level cache would push each other out.
    """
    count = ends[end - 1 - first, 1]
    if n + ends[end - 1 - first, 0] + count + 8 > out.size:
        return np.int64(-1)
    held: Scalar = np.int64(0)
    checked: Scalar = np.int64(0)
    for event in range(done, end):
        # Most events have a few, and how few cannot be predicted: these are copied without asking.
        stop = ends[event - first, 0]
        copy_8(kept, held, out, n)
        while held + 8 < stop:
            held += 8
            n += 8
            copy_8(kept, held, out, n)
        n += stop - held
        held = stop
        while checked < ends[event - first, 1]:
            if checked == fetched:
                fetched = min(fetched + FETCHED, count)
                fetch_boxes(row_ptr, number, attr, lo, hi, waiting, checked, fetched)
            clause = np.int64(waiting[checked])
            out[n] = clause
            n += box_holds(row_ptr, number, attr, lo, hi, codes, list_ptr, list_codes, event, clause)
            checked += 1
        ptr[event + 1] = begin + n
    return np.int64(n)


@hot
def descend(
    tree: LookupTree,
    rows: Rows,
    batch: Projected,
    points: Points,
    start: Scalar,
    scratch: Scratch,
    out: Ints,
    ptr: Longs,
) -> Scalar:
    """Match events start: into `out`; return the first event that did not fit.

    The matches of an event e end at `ptr[e + 1]`, counted from where those of event 0 began in some earlier array: `out`
    begins at `ptr[start]`.

    Events go in blocks. What their leaves find is kept, and what has to be checked waits, until the block is searched or there is no more
    room; then `settle` writes. If `out` is too small for that, the event is given up and the caller comes back with a larger array. In which
    order the matches of an event come does not depend on the other events.
    """
    nodes, tests, table, leaves, columns, maps, slots, guards, near, bucket_ptr, buckets, starts = tree
    row_ptr, number, attr, lo, hi = rows
    codes, list_ptr, list_codes = batch
    point_codes, point_ptr, point_lists = points
    stack, places, found, waiting, kept, ends, own, met, numbers, there = scratch
    n = np.int64(0)
    begin = ptr[start]
    for c in range(own.size if starts.size > 0 else 0):
        own[c] = SINGLE  # that of NULL, and so it is again after each event
    is_far = 8 * (leaves.size + maps.size) + 4 * (slots.size + guards.size) > FAR_TREE
    looks_ahead = is_far and nodes[0, 1] - nodes[0, 0] <= FEW_TESTS
    for step in range(FETCH_STEPS if looks_ahead else 0):
        for ahead in range(FETCH_STEPS - step):
            fetch_ahead(nodes, tests, table, leaves, columns, maps, slots, guards, codes, step, start + ahead * BLOCK)
    for block in range(start, codes.shape[0], BLOCK):
        stop = min(block + BLOCK, codes.shape[0])
        done, held, count = block, np.int64(0), np.int64(0)
        for event in range(block, stop):
            stack[0] = 0
            top = 1
            has_buckets, has_lists = False, False
            n_there = list_present(codes, event, numbers, there) if starts.size > 0 else 0
            by_present = 2 * n_there < starts.size
            while top > 0:
                top -= 1
                item = np.int64(stack[top])
                if item <= 0:
                    before = top
                    if by_present and item == 0:
                        top = push_present(nodes, tests, table, leaves, codes, list_ptr, list_codes, event, starts, there,
                                           n_there, stack, top)  # fmt: skip
                    else:
                        top = push_children(
                            nodes, tests, table, leaves, codes, list_ptr, list_codes, event, -item, stack, top
                        )
                    if is_far and top - before > MANY_CHILDREN:
                        fetch_slots(leaves, guards, slots, stack, before, top)
                    continue
                if is_far and top > 1:
                    fetch_places(leaves, columns, guards, np.int64(stack[top - 2]))
                    fetch_rows(leaves, columns, maps, codes, event, np.int64(stack[top - 1]))
                    if stack[top - 1] > 0:
                        after = np.int64(stack[top - 1]) - 1
                        fetch_guards(leaves, guards, after)
                        for at in range(
                            leaves[after, SLOT], leaves[after, SLOT] + min(leaves[after, SIZE], np.int64(128)), 16
                        ):
                            prefetch(slots, at)
                leaf = item - 1
                if is_needless(leaves, leaf, codes, event):
                    continue
                size = leaves[leaf, SIZE]
                if event > done and is_full(held, kept, count, waiting, size):
                    n = settle(row_ptr, number, attr, lo, hi, point_codes, point_ptr, point_lists, block, done, event,
                               waiting, kept, ends, np.int64(0), out, n, begin, ptr)  # fmt: skip
                    if n < 0:
                        return done
                    done = event
                    held = move_down(kept, ends[event - 1 - block, 0], held)
                    count = move_down(waiting, ends[event - 1 - block, 1], count)
                if is_full(held, kept, count, waiting, size):
                    ends[event - block, 0], ends[event - block, 1] = held, count
                    n = settle(row_ptr, number, attr, lo, hi, point_codes, point_ptr, point_lists, block, event, event + 1,
                               waiting, kept, ends, np.int64(0), out, n, begin, ptr)  # fmt: skip
                    if n < 0:
                        return event
                    held, count = np.int64(0), np.int64(0)
                guarded = leaves[leaf, WORDS] == 0 and leaves[leaf, SURE] > 0
                if guarded and not has_buckets:
                    if by_present:
                        has_lists = load_present(codes, list_ptr, list_codes, event, there, n_there, near, bucket_ptr, buckets,
                                                 own, met)  # fmt: skip
                    else:
                        has_lists = load_buckets(codes, list_ptr, list_codes, event, near, bucket_ptr, buckets, own,
                                                 met)  # fmt: skip
                    has_buckets = True
                if guarded and has_lists:
                    waited, in_pairs, checked = count, leaves[leaf, SURE] == PAIRED, leaves[leaf, CHECKED] > 0
                    count, held = list_guarded(guards, leaves[leaf, MAP], size, in_pairs, slots, leaves[leaf, SLOT], own, near, met,
                                               checked, waiting, count, kept, held)  # fmt: skip
                    for i in range(waited, count):
                        prefetch(row_ptr, np.int64(waiting[i]))
                    continue
                count, held = search_leaf(leaves, columns, maps, slots, guards, codes, list_ptr, list_codes, event, leaf, own,
                                          row_ptr, places, found, waiting, count, kept, held)  # fmt: skip
            ends[event - block, 0], ends[event - block, 1] = held, count
            for i in range(n_there if has_buckets else 0):
                own[there[i]] = SINGLE
        fetched = min(count, FETCHED)
        fetch_boxes(row_ptr, number, attr, lo, hi, waiting, 0, fetched)
        for step in range(FETCH_STEPS if looks_ahead else 0):
            fetch_ahead(
                nodes,
                tests,
                table,
                leaves,
                columns,
                maps,
                slots,
                guards,
                codes,
                step,
                stop + (FETCH_STEPS - 1 - step) * BLOCK,
            )
        n = settle(row_ptr, number, attr, lo, hi, point_codes, point_ptr, point_lists, block, done, stop, waiting, kept, ends,
                   fetched, out, n, begin, ptr)  # fmt: skip
        if n < 0:
            return done
    return codes.shape[0]


@hot
def tally_descend(tree: LookupTree, batch: Projected, scratch: Scratch, totals: Longs) -> None:
    """What matching a batch looks at: nodes, leaves, slots of those leaves, and slots checked by rows."""
    nodes, tests, table, leaves, columns, maps, slots, guards, near, bucket_ptr, buckets, _ = tree
    codes, list_ptr, list_codes = batch
    stack, places, found, waiting, kept, _, own, met, _, _ = scratch
    for event in range(codes.shape[0]):
        has_lists = load_buckets(codes, list_ptr, list_codes, event, near, bucket_ptr, buckets, own, met)
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            item = np.int64(stack[top])
            if item <= 0:
                totals[0] += 1
                top = push_children(nodes, tests, table, leaves, codes, list_ptr, list_codes, event, -item, stack, top)
                continue
            leaf = item - 1
            if is_needless(leaves, leaf, codes, event):
                continue
            totals[1] += 1
            totals[2] += leaves[leaf, SIZE]
            if leaves[leaf, WORDS] == 0 and leaves[leaf, SURE] > 0:
                begin, size, in_pairs = leaves[leaf, MAP], leaves[leaf, SIZE], leaves[leaf, SURE] == PAIRED
                if has_lists:
                    first, checked = leaves[leaf, SLOT], leaves[leaf, CHECKED] > 0
                    given = guards, begin, size, in_pairs, slots, first, own, near, met, checked
                    totals[3] += list_guarded(*given, waiting, np.int64(0), kept, np.int64(0))[0]
                else:
                    for guard in range(begin, begin + size, 64):
                        word, certain = find_pairs(guards, guard, min(guard + 64, begin + size), size, in_pairs, own)
                        totals[3] += popcount(word & ~certain)
            elif leaves[leaf, WORDS] == 0:
                totals[3] += leaves[leaf, SIZE]
            elif leaves[leaf, CHECKED] > 0:
                find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
                for i in range(leaves[leaf, WORDS]):
                    totals[3] += popcount(found[i] & ~found[leaves[leaf, WORDS] + i])


@hot
def mark_codes(tests: Ints, table: Ints, first: Scalar, end: Scalar, codes: Ints, marks: npt.NDArray[np.bool_]) -> None:
    """Mark the codes that lead somewhere through one of the tests first:end, all of one column."""
    for i in range(codes.size):
        for test in range(first, end):
            if find_child(tests, table, test, codes[i]) != 0:
                marks[i] = True


@jit
def measure_depth(nodes: Ints, tests: Ints, table: Ints, n_columns: Scalar, n_leaves: Scalar, depth: Ints) -> Scalar:
    """The depth of a tree out of a file; -1 if a test, table or link of it leads out of its arrays or in a circle.

    Children stand behind their parents and have one parent, so one pass in order meets each after its parent. `depth` has
    an entry per node, 0 for the root and -1 for the others. A hash needs an empty entry, at which a search ends.
    """
    for node in range(nodes.shape[0]):
        if depth[node] < 0:
            return -1
        for test in range(nodes[node, 0], nodes[node, 1]):
            column, packed = tests[test, 0], np.int64(tests[test, 1])
            size, start = np.int64(tests[test, 3]), np.int64(tests[test, 4])
            passed, shift = packed >> PASSED_AT, packed & ((1 << PASSED_AT) - 1) & ~NO_NULL
            is_hash = size < 0
            entries = -size if is_hash else size
            step = 2 if is_hash else 1
            if column < 0 or column >= n_columns or shift > 31 or entries == 0:
                return -1
            if passed < 0 or test + passed >= nodes[node, 1] or (passed > 0 and packed & NO_NULL == 0):
                return -1
            if start < 0 or start + entries * step > table.size or (is_hash and entries & (entries - 1)):
                return -1
            n_empty = 0
            for entry in range(entries):
                child = np.int64(table[start + step * entry + step - 1])
                n_empty += child == 0
                if child > n_leaves:
                    return -1
                if child < 0:
                    if -child >= nodes.shape[0] or -child <= node or depth[-child] >= 0:
                        return -1
                    depth[-child] = depth[node] + 1
            if is_hash and n_empty == 0:
                return -1
    return depth.max()
