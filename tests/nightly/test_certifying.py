"""The operator certifies and removes a resource, in processes that go on: what waits for whole games in real time."""

from live.conftest import free_port
from live.processes import line_of, party
from live.test_live_command import VEHICLES
from running import run


def test_a_resource_is_certified_and_removed_while_board_and_gateway_run(tmp_path):
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    operator = ("live", "operator", "keys")
    made = run(*operator, "--resources", "vehicles.csv", "--member", "alice", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    port = free_port()
    times = ("--every", "1s", "--joining", "4s", "--slot", "2s", "--port", str(port))
    hub = ("--trust", "keys/trust.json", "--hub", f"ws://127.0.0.1:{port}/bus")
    with party("board", "keys", "--resources", "vehicles.csv", *times, folder=tmp_path) as board:
        line_of(board, "The hub is at")
        with party("resource", "keys/gateway.json", *hub, folder=tmp_path) as resource:
            line_of(resource, "Serving 2 resources")
            # The board offers nothing but a resource that did not exist when both were started.
            (tmp_path / "vehicles.csv").write_text("id,lat,lon\nv9,40.7510,-73.9900\n")
            told = run(*operator, "--certify", "vehicles.csv", folder=tmp_path)
            assert told.returncode == 0, told.stderr
            assert "1 certificate added" in told.stdout
            line_of(resource, "Serving 3 resources")
            words = ("--at", "40.7500,-73.9900", "--ledger", "alice.ledger", "--member", "keys/member-alice.key")
            # A game that opened before the certificate still offers the old list: the game after it cannot.
            for _ in range(2):
                with party("device", *words, *hub, "--games", "5", folder=tmp_path) as device:
                    got = line_of(resource, "(v[129]) goes to 40.750000,-73.990000").group(1)
                    line_of(device, f"matched to {got}, which answered Accepted")
                    # One that is ended before it has closed its request goes on with it, and no resource says so again.
                    line_of(device, "Remaining budget")
                    assert device.wait() == 0
                if got == "v9":
                    break
            assert got == "v9"
            told = run(*operator, "--remove-resource", "v9", folder=tmp_path)
            assert told.returncode == 0, told.stderr
            assert "Give devices the new trust.json" in told.stdout.replace("\n", " ")
            line_of(resource, "Serving 2 resources")
    told = run(*operator, "--certify", "vehicles.csv", "--remove-member", "alice", folder=tmp_path)
    assert (told.returncode, told.stdout) == (2, "")
    assert "changes nothing else" in told.stderr
    told = run(*operator, "--remove-member", "alice", folder=tmp_path)
    assert told.returncode == 0, told.stderr
    assert (tmp_path / "keys" / "members.txt").read_text() == ""
