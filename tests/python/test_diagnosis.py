from octavo.tracing.valgrind import (
    diagnose,
    first_line,
    lack_of_room,
    refused_pages,
    seccomp_death,
    untraced_program,
)


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


def test_a_program_that_got_no_pages_of_hugetlbfs_is_named() -> None:
    asked = "./a b asked for 4194305 bytes in pages of hugetlbfs (2048 KiB each) and got none"
    refused = refused_pages(f"==7== octavo tracer: {asked}\n")
    assert refused is not None
    assert (refused.program, refused.page_size, refused.pages) == ("./a b", 2 << 20, 3)
    assert refused_pages("octavo tracer: /bin/a ran untraced: no /proc") is None
    assert refused_pages(f"octavo tracer: {asked.replace('2048', '0')}") is None
    assert refused_pages(f"octavo tracer: {asked.replace('4194305', 5000 * '9')}") is None


def test_a_failure_is_told_before_memory_that_the_program_went_on_without() -> None:
    asked = "octavo tracer: a asked for 5 bytes in pages of hugetlbfs (4 KiB each) and got none"
    assert first_line(f"==7== {asked}\n==7== the ring is gone.\n") == "the ring is gone"
    assert first_line(asked) == asked
    assert first_line("") is None
