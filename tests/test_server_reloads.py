"""Wishes for a new model: many become one, and each is told something exactly once."""

from server.orders import TellReload
from server.reloads import Reloads


def test_reloads_wait_as_one_with_the_folder_that_was_named():
    reloads = Reloads()
    assert reloads.take() is None
    assert [reloads.ask(model) for model in ("", "a", "", "a")] == [
        (1, []), (2, []), (3, []), (4, [])]
    assert reloads.take() == ((1, 2, 3, 4), "a") and reloads.take() is None


def test_reloads_of_two_folders_the_later_counts_and_the_earlier_is_told():
    reloads = Reloads()
    reloads.ask("a")
    ticket, told = reloads.ask("b")
    assert told == [TellReload((1,), False, "superseded by a later request for b")]
    assert reloads.take() == ((ticket,), "b")


def test_reloads_given_up_are_told_why_once():
    reloads = Reloads()
    reloads.ask("")
    assert reloads.give_up("ending") == [TellReload((1,), False, "ending")]
    assert reloads.give_up("ending") == [] and reloads.ask("a")[0] == 2
