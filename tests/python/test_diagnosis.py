from octavo.tracing.valgrind import (
    RefusedPages,
    diagnose,
    first_line,
    lack_of_room,
    refused_pages,
    seccomp_death,
    untraced_program,
)

DEFAULT = 2 << 20


def test_ordinary_messages_need_no_diagnosis() -> None:
    crash = "==1== \n==1== Process terminating with default action of signal 11 (SIGSEGV)\n"
    assert diagnose(crash) is None
    assert diagnose("") is None
    assert first_line(crash) == "Process terminating with default action of signal 11 (SIGSEGV)"
    assert first_line("==1== \n") is None


def test_valgrinds_own_complaints_are_passed_on() -> None:
    assert diagnose("valgrind: mmap(0x400000) failed.\n") == (
        "Valgrind says: mmap(0x400000) failed"
    )


def test_an_instruction_that_no_processor_knows_is_not_blamed_on_its_age() -> None:
    """Valgrind gives no bytes of `ud2`."""
    message = "valgrind: Unrecognised instruction at address 0x10."
    assert diagnose(message) == "Valgrind says: Unrecognised instruction at address 0x10"
    message = f"vex amd64->IR: unhandled instruction bytes: 0x62 0xF1\n{message}"
    assert "does not know (0x62 0xF1) at 0x10" in str(diagnose(message))


def test_a_death_by_seccomp_differs_from_other_faults() -> None:
    message = "octavo tracer: ./sandboxed confined its system calls (seccomp filter), and died\n"
    assert diagnose(message) == seccomp_death(message)
    assert str(diagnose(message)).startswith(
        "./sandboxed confined its system calls (seccomp filter)"
    )
    assert seccomp_death("==1== nothing of it") is None


def test_the_first_untraced_program_is_named() -> None:
    message = (
        "==7== octavo tracer: /bin/a ran untraced: no /proc\n==8== octavo tracer: b ran untraced: x"
    )
    assert untraced_program(message) == ("/bin/a", "no /proc")
    assert untraced_program("") is None


def test_a_program_that_asked_for_too_much_address_space_is_named() -> None:
    message = "a asked for 9 MiB of address space in one piece and got none: why"
    assert lack_of_room(f"==7== octavo tracer: {message}\n") == message
    assert lack_of_room("octavo tracer: /bin/a ran untraced: no /proc") is None


def refusal(
    program: str, kib: int, mappings: int, in_all: int, largest: int, process: int = 7
) -> str:
    """The tracer's message about mappings in pages of hugetlbfs; 0 KiB stands for no size named."""
    size = f"{kib} KiB each" if kib else "of the default size"
    return (
        f"==7== octavo tracer: {program} got no pages of hugetlbfs ({size}): mappings "
        f"refused: {mappings}, with {in_all} bytes in all, {largest} in the largest\n"
    ).replace("==7==", f"=={process}==")


def test_a_program_that_got_no_pages_of_hugetlbfs_is_named() -> None:
    first, of_1_gib = refusal("./a b", 2048, 1, 5, 5), refusal("./a b", 1 << 20, 1, 7, 7)
    total = refusal("./a b", 2048, 3, 12, 6)
    assert refused_pages(first, DEFAULT) == [RefusedPages("./a b", 2 << 20, 1, 5, 5)]
    assert refused_pages(first + of_1_gib + total, DEFAULT) == [
        RefusedPages("./a b", 2 << 20, 3, 12, 6),
        RefusedPages("./a b", 1 << 30, 1, 7, 7),
    ]
    assert refused_pages("octavo tracer: /bin/a ran untraced: no /proc", DEFAULT) == []
    assert refused_pages(first.replace("2048", 5000 * "9"), DEFAULT) == []


def test_mappings_of_the_default_size_are_added_to_those_that_name_it() -> None:
    named, default = refusal("a", 2048, 1, 5, 5), refusal("a", 0, 1, 3, 3)
    assert refused_pages(named + default, DEFAULT) == [RefusedPages("a", DEFAULT, 2, 8, 5)]
    assert [one.page_size for one in refused_pages(default, 1 << 30)] == [1 << 30]


def test_mappings_that_several_processes_of_a_program_did_not_get_are_added() -> None:
    by_7, by_8 = refusal("a", 0, 1, 5, 5, process=7), refusal("a", 0, 2, 3, 2, process=8)
    assert refused_pages(by_7 + by_8, DEFAULT) == [RefusedPages("a", DEFAULT, 3, 8, 5)]


def test_mappings_that_several_images_of_a_process_did_not_get_are_added() -> None:
    once, total = refusal("a", 0, 1, 5, 5), refusal("a", 0, 3, 12, 6)
    assert refused_pages(once + total + once, DEFAULT) == [RefusedPages("a", DEFAULT, 4, 17, 6)]
    # An exec that fails has the totals reported, and the image goes on.
    later = refusal("a", 0, 4, 20, 8)
    assert refused_pages(once + total + later, DEFAULT) == [RefusedPages("a", DEFAULT, 4, 20, 8)]


def test_a_failure_is_told_before_memory_that_the_program_went_on_without() -> None:
    asked = refusal("a", 4, 1, 5, 5)
    assert first_line(f"{asked}==7== the ring is gone.\n") == "the ring is gone"
    assert f"==7== {first_line(asked)}\n" == asked
    assert first_line("") is None
