"""The forms that a matching tree can have."""

from __future__ import annotations

from wherecast.papers.gryphon.matcher import Settings

SETTINGS = {
    "plain": Settings(collapse=False, factors=0),
    "plain, successors": Settings(collapse=False, successors=True, factors=0),
    "plain, factored": Settings(collapse=False, factors=None),
    "collapsed": Settings(factors=0),
    "collapsed, successors": Settings(successors=True, factors=0),
    "collapsed, factored": Settings(factors=None),
    "all": Settings(successors=True, factors=None),
    "general": Settings(general=True, factors=0),
    "general, all": Settings(general=True, successors=True, factors=None),
}
