"""The forms that a matching tree can have."""

from __future__ import annotations

from wherecast.papers.gryphon.matcher import TreeSettings

SETTINGS = {
    "plain": TreeSettings(collapse=False, factors=0),
    "plain, successors": TreeSettings(collapse=False, successors=True, factors=0),
    "plain, factored": TreeSettings(collapse=False, factors=None),
    "collapsed": TreeSettings(factors=0),
    "collapsed, successors": TreeSettings(successors=True, factors=0),
    "collapsed, factored": TreeSettings(factors=None),
    "all": TreeSettings(successors=True, factors=None),
    "general": TreeSettings(general=True, factors=0),
    "general, all": TreeSettings(general=True, successors=True, factors=None),
}
