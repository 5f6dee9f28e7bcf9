"""All stories, in the order of the page."""

from __future__ import annotations

from onecopy_bench.stories import images, models, share, start, structs

STORIES = (models.STORY, start.STORY, images.STORY, share.STORY, structs.STORY)
NAMES = tuple(story.name for story in STORIES)
